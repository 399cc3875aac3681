// Which Markdown files are pages of the site, what their addresses are, and where their links lead.
import fs from 'node:fs'
import path from 'node:path'

export const repository = 'https://github.com/pglatch/pglatch'

// The groups of the sidebar are the directories of docs/. Those named here come first, in this order.
const titles = {
  tutorials: 'Tutorials',
  'how-to': 'How-to guides',
  reference: 'Reference',
  explanation: 'Explanation',
  'coming-from': 'Coming from',
  adr: 'Decisions'
}
const loose = 'Guide' // pages of docs/ itself
const project = 'Project' // pages of the root, such as the changelog

// A Site has all pages below a root directory, in the order of the sidebar. A page has these fields:
//   file: the Markdown file, relative to the root
//   page: the same for the site, as "adr/0001.md"; the site has it as adr/0001.html
//   title: its first heading
//   group: the title of its group in the sidebar, "" for the index
export class Site {
  constructor(root) {
    this.root = root
    const files = markdown(root, 'docs').concat(fs.readdirSync(root).filter((name) => name.endsWith('.md')))
    const index = files.find((file) => file === 'docs/README.md') ?? 'README.md'
    const mentioned = new Map() // files that the index links, by their place there
    for (const [, href] of read(root, index).matchAll(/\]\(([^)\s#]+)/g)) {
      const file = path.posix.join(path.posix.dirname(index), href)
      if (!mentioned.has(file)) mentioned.set(file, mentioned.size)
    }
    this.pages = files.map((file) => ({ file, page: address(file, index), title: title(read(root, file)), group: file === index ? '' : group(file) }))
    this.pages.sort((a, b) =>
      place(a) - place(b) || compare(a.group, b.group) ||
      (mentioned.get(a.file) ?? mentioned.size) - (mentioned.get(b.file) ?? mentioned.size) || compare(link(a), link(b)))
    this.byFile = new Map(this.pages.map((p) => [p.file, p]))
    const seen = new Map()
    for (const p of this.pages) {
      if (seen.has(p.page)) throw new Error(`${seen.get(p.page)} and ${p.file} have one address: ${p.page}`)
      seen.set(p.page, p.file)
    }
  }

  // sidebar returns the groups with their pages. A long group is closed until the reader opens it or one of its pages.
  sidebar() {
    const groups = new Map()
    for (const p of this.pages) groups.set(p.group, [...(groups.get(p.group) ?? []), p])
    return [...groups].map(([text, pages]) => {
      const items = pages.map((p) => ({ text: p.title, link: link(p) }))
      return text === '' ? items[0] : { text, items, collapsed: items.length > 12 }
    })
  }

  // resolve returns where a link in a file leads: to a page of the site, or to a file or directory in the repository.
  // A link to a directory of pages leads to its first page. It throws an error if the link leads nowhere.
  resolve(file, href) {
    if (/^([a-z][a-z0-9+.-]*:|\/\/|#|$)/i.test(href)) return href
    const [, target, anchor] = href.match(/^([^#]*)(#.*)?$/)
    const to = path.posix.join(path.posix.dirname(file), decodeURI(target)).replace(/\/$/, '')
    const page = this.byFile.get(to) ?? this.byFile.get(to + '/README.md') ?? this.pages.find((p) => to !== '.' && p.file.startsWith(to + '/'))
    if (page) return link(page) + (anchor ?? '')
    const found = to.startsWith('..') ? undefined : fs.statSync(path.join(this.root, to), { throwIfNoEntry: false })
    if (!found) throw new Error(`${file}: the link ${href} leads nowhere`)
    if (to === '.') return repository
    return `${repository}/${found.isDirectory() ? 'tree' : 'blob'}/main/${encodeURI(to)}${anchor ?? ''}`
  }
}

// link is the address of a page on the site, as VitePress expects it in links.
export const link = (p) => '/' + p.page.replace(/(^|\/)index\.md$/, '$1')

// slug returns the anchor that GitHub gives a heading. Links with anchors then work on GitHub and on the site.
export const slug = (heading) =>
  heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc} -]/gu, '').replaceAll(' ', '-')

// title returns the first heading of a page as plain text.
export function title(text) {
  const heading = text.replace(/^(```|~~~).*?^\1/gms, '').match(/^# +(.*?)[ #]*$/m)
  if (!heading) throw new Error(`no heading: ${text.slice(0, 60)}`)
  return heading[1].replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/[`*]/g, '')
}

// markdown lists the Markdown files below a directory.
function markdown(root, dir) {
  return fs.readdirSync(path.join(root, dir), { withFileTypes: true }).flatMap((entry) => {
    const file = `${dir}/${entry.name}`
    if (entry.isDirectory()) return entry.name.startsWith('.') || entry.name === 'node_modules' ? [] : markdown(root, file)
    return entry.name.endsWith('.md') ? [file] : []
  })
}

function address(file, index) {
  if (file === index) return 'index.md'
  if (!file.startsWith('docs/')) return `project/${file.toLowerCase()}`
  return file.slice('docs/'.length).replace(/(^|\/)README\.md$/, '$1index.md')
}

function group(file) {
  const [top, dir, rest] = file.split('/')
  if (top !== 'docs') return project
  if (rest === undefined) return loose
  return titles[dir] ?? dir[0].toUpperCase() + dir.slice(1).replaceAll('-', ' ')
}

// place sorts the groups: the index, pages of docs/ itself, its directories, the project's pages.
function place({ group }) {
  const named = ['', loose, ...Object.values(titles)]
  if (named.includes(group)) return named.indexOf(group)
  return named.length + (group === project ? 1 : 0)
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0)
const read = (root, file) => fs.readFileSync(path.join(root, file), 'utf8')
