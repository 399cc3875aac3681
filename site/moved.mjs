// Pages at the old addresses of pages that moved.
import fs from 'node:fs'
import path from 'node:path'

// readMoved returns the map docs/moved.json: from the old path of a page to its new one. Both may have an anchor, for a section
// that moved elsewhere. Paths are relative to the root, or to docs/. Without the file the map is empty.
export function readMoved(root) {
  const file = path.join(root, 'docs/moved.json')
  return fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, 'utf8')) : {}
}

// redirects returns the pages to write: their names on the site, and their contents. It throws an error if an old path is still a
// page, if a new one is none, or if a section moved but its page did not.
export function redirects(site, moved) {
  const pages = new Map() // by old file
  for (const [from, to] of Object.entries(moved)) {
    const [old, section] = split(from)
    const [file, anchor] = split(to)
    const page = site.byFile.get(file)
    if (!page) throw new Error(`docs/moved.json: ${to} is no page`)
    if (site.byFile.has(old)) throw new Error(`docs/moved.json: ${from} is still a page`)
    if (!old.endsWith('.md')) throw new Error(`docs/moved.json: ${from} was no page`)
    const name = html(old.slice('docs/'.length).replace(/(^|\/)README\.md$/, '$1index.md'))
    const target = { address: path.posix.relative(path.posix.dirname(name), html(page.page)) + (anchor && '#' + anchor), title: page.title }
    if (!pages.has(old)) pages.set(old, { name, sections: [] })
    if (section) pages.get(old).sections.push({ ...target, section })
    else pages.get(old).target = target
  }
  return [...pages].map(([old, { name, target, sections }]) => {
    if (!target) throw new Error(`docs/moved.json: ${old} has no new address`)
    return { name, content: redirect(target, sections) }
  })
}

// split returns the file of a path, relative to the root, and its anchor, which may be empty.
function split(to) {
  const [file, anchor = ''] = to.split('#')
  return [file.startsWith('docs/') ? file : `docs/${file}`, anchor]
}

const html = (page) => page.replace(/\.md$/, '.html')
const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')

// redirect is a page that leads to an address. Its links have the ids of the old sections. With JavaScript, an old anchor leads to
// the section's new address, and an anchor that did not move is kept. Without, the reader gets to the new page.
function redirect({ address, title }, sections) {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url=${escape(address)}">
<title>${escape(title)}</title>
<main><h1>${escape(title)}</h1>
<p>This page moved to <a id="new" href="${escape(address)}">${escape(address)}</a>.</p>
<ul>
${sections.map((s) => `<li><a id="${escape('#' + s.section)}" href="${escape(s.address)}">${escape(s.section)}: ${escape(s.title)}</a></li>`).join('\n')}
</ul></main>
<script>
const section = document.getElementById(decodeURIComponent(location.hash))
const page = document.getElementById('new').getAttribute('href')
location.replace(section ? section.getAttribute('href') : page.includes('#') ? page : page + location.hash)
</script>
`
}
