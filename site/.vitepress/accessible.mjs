// Screen readers cannot tell what is in a button or in an option. The theme's search box is a button that contains a form, and its
// options contain links. Each group of its sidebar is a button that contains another one. This plugin makes the box a dialog, and
// the links the options. A group is a button if it opens and closes, and its arrow is decoration. The page of a missing page gets a
// main element. If a new version of VitePress has another source, the build fails.
const changes = {
  'VPLocalSearchBox.vue': [
    [/role="button"\s+:aria-owns="[^"]*"\s+aria-expanded="true"\s+aria-haspopup="listbox"/, 'role="dialog" aria-modal="true"'],
    [/:id="'localsearch-item-' \+ index"\s+:aria-selected="[^"]*"\s+role="option"/, 'role="none"'],
    [/:href="p\.id"/, `:href="p.id" role="option" :id="'localsearch-item-' + index" :aria-selected="selectedIndex === index ? 'true' : 'false'"`],
    [/<kbd :aria-label/g, '<kbd role="img" :aria-label'] // a kbd may not have a label, and an image may
  ],
  'NotFound.vue': [
    [/<div class="NotFound">/, '<main class="NotFound">'],
    [/<\/div>(?=\s*<\/template>)/, '</main>']
  ],
  'VPSidebarItem.vue': [
    [/:role="itemRole"/, `:role="collapsible ? 'button' : undefined" :aria-expanded="collapsible ? !collapsed : undefined"`],
    [/:tabindex="item\.items && 0"/, ':tabindex="collapsible ? 0 : undefined"'],
    [/role="button"\s+aria-label="toggle section"\s+@click="onCaretClick"\s+@keydown\.enter="onCaretClick"\s+tabindex="0"/, 'aria-hidden="true"']
  ]
}

export const accessible = {
  name: 'accessible',
  enforce: 'pre',
  transform(code, id) {
    return changes[id.split('/').pop()]?.reduce((text, [pattern, replacement]) => {
      if (!pattern.test(text)) throw new Error(`the theme of VitePress has no ${pattern}: ${id}`)
      return text.replace(pattern, () => replacement)
    }, code)
  }
}
