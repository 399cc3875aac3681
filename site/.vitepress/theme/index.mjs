import theme from 'vitepress/theme'
import './style.css'

export default {
  extends: theme,
  enhanceApp({ app }) {
    app.config.throwUnhandledErrorInProduction = import.meta.env.SSR // it ends the build
  }
}
