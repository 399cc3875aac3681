// The check of the built site: every link and every image leads to a file of the site, and every anchor to an element.
import fs from 'node:fs'
import path from 'node:path'

// check returns the broken references of the pages in a directory that is served under base.
export function check(dir, base = '/') {
  const pages = new Map(files(dir).filter((file) => file.endsWith('.html')).map((file) => [file, parse(path.join(dir, file))]))
  const broken = []
  for (const [file, { references }] of pages) {
    for (const reference of references) {
      const fault = wrong(dir, base, file, reference, pages)
      if (fault) broken.push(`${file}: ${reference} ${fault}`)
    }
  }
  return broken
}

// wrong returns what is wrong with a reference of a page, or undefined.
function wrong(dir, base, file, reference, pages) {
  if (/^([a-z][a-z0-9+.-]*:|\/\/)/i.test(reference)) return undefined // outside of the site
  const here = new URL(base + file, 'http://site')
  const { pathname, hash } = new URL(reference, here)
  if (!pathname.startsWith(base)) return `is outside of ${base}`
  let to = decodeURI(pathname.slice(base.length))
  if (to === '' || to.endsWith('/')) to += 'index.html'
  if (!fs.existsSync(path.join(dir, to))) return 'leads to no file'
  const anchor = decodeURIComponent(hash.slice(1))
  if (anchor && pages.has(to) && !pages.get(to).ids.has(anchor)) return `leads to no element of ${to}`
  return undefined
}

// parse returns the ids of a page's elements and its references.
function parse(file) {
  const text = fs.readFileSync(file, 'utf8').replace(/<!--.*?-->/gs, '').replace(/(<script[^>]*>).*?<\/script>/gs, '$1')
  const values = (pattern) => [...text.matchAll(pattern)].map((m) => decode(m[1]))
  return { ids: new Set(values(/\sid="([^"]*)"/g)), references: new Set(values(/\s(?:href|src)="([^"]*)"/g)) }
}

const entities = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'" }
const decode = (text) => text.replace(/&(amp|lt|gt|quot|#39);/g, (entity) => entities[entity])

function files(dir, below = '') {
  return fs.readdirSync(path.join(dir, below), { withFileTypes: true }).flatMap((entry) => {
    const name = path.posix.join(below, entry.name)
    return entry.isDirectory() ? files(dir, name) : [name]
  })
}
