// Package services starts services, such as schedulers, when a node becomes the leader. It stops them before
// the node gives up leadership.
//
//	group, err := services.New(elector, services.Config{Services: []services.Spec{
//		{Name: "refresh", New: newRefresh},
//		{Name: "retention", New: newRetention},
//	}})
//	if err != nil {
//		return err
//	}
//	err = group.Run(ctx) // until ctx ends
package services
