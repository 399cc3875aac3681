// The documentation site: the Markdown files of docs/ and of the root. make docs builds it.
//
// Pages are written for GitHub, and the site adapts to them: headings have GitHub's anchors, indented blocks are commands, and
// links to what is not on the site lead to the repository.
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

import { check } from '../check.mjs'
import { readMoved, redirects } from '../moved.mjs'
import { link, repository, Site, slug } from '../pages.mjs'
import { current, releases } from '../version.mjs'
import { accessible } from './accessible.mjs'

const here = path.dirname(path.dirname(fileURLToPath(import.meta.url)))
const root = path.dirname(here)
const site = new Site(root)
const moved = redirects(site, readMoved(root))
const changelog = site.byFile.get('CHANGELOG.md')

export default defineConfig({
  lang: 'en',
  title: 'pglatch',
  description: 'Locks for Go programs with several replicas, on the PostgreSQL you already run',
  base: process.env.SITE_BASE || '/', // where a server will have it, such as /pglatch/
  srcDir: root,
  srcExclude: fs.readdirSync(root, { withFileTypes: true }).filter((e) => e.isDirectory() && e.name !== 'docs').map((e) => `${e.name}/**`),
  rewrites: (file) => site.byFile.get(file)?.page ?? file,
  outDir: path.join(here, 'dist'),
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: `data:image/svg+xml,${encodeURIComponent(icon())}` }]],
  themeConfig: {
    nav: [{ text: current(root), items: [...(changelog ? [{ text: 'Changelog', link: link(changelog) }] : []), ...releases(root)] }],
    sidebar: site.sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
    notFound: { title: 'Page not found', quote: 'The page may have moved. The search finds pages by their words.', linkText: 'Go to the index', linkLabel: 'go to the index' },
    editLink: { pattern: `${repository}/edit/main/:path` }
  },
  markdown: {
    anchor: { slugify: slug },
    attrs: { disable: true }, // GitHub has no {.class}
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config: (md) => {
      md.linkify.set({ fuzzyLink: false, fuzzyEmail: false })
      md.core.ruler.push('github', ({ tokens, env }) => {
        if (env.path) adapt(tokens, path.relative(root, env.realPath ?? env.path))
      })
      const text = md.renderer.rules.text
      md.renderer.rules.text = (...args) => text(...args).replaceAll('{{', '&#123;&#123;') // Vue would evaluate it
    }
  },
  vite: { plugins: [{ name: 'resolve-from-here', enforce: 'pre', resolveId: resolveFromHere }, accessible] },
  buildEnd({ outDir, site: { base } }) {
    for (const { name, content } of moved) {
      fs.mkdirSync(path.dirname(path.join(outDir, name)), { recursive: true })
      fs.writeFileSync(path.join(outDir, name), content)
    }
    const broken = check(outDir, base)
    if (broken.length > 0) throw new Error('broken links:\n' + broken.join('\n'))
  }
})

// adapt changes the tokens of a page, or of inline text, from GitHub's Markdown to that of the site.
function adapt(tokens, file) {
  tokens.forEach((token, i) => {
    if (token.type === 'link_open') token.attrSet('href', site.resolve(file, token.attrGet('href')))
    if (token.type === 'code_block') Object.assign(token, { type: 'fence', info: 'sh' })
    if (token.type === 'th_open' && tokens[i + 1].content === '') token.tag = tokens[i + 2].tag = 'td' // an empty cell is the heading of nothing
    if (token.children) adapt(token.children, file)
  })
}

// resolveFromHere finds the packages that pages import. The pages are outside of this directory, which has the packages.
function resolveFromHere(id, importer, options) {
  if (!/^vue(\/|$)/.test(id) || !importer || importer.startsWith(here + '/')) return null
  return this.resolve(id, path.join(here, 'package.json'), { ...options, skipSelf: true })
}

function icon() {
  return '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect x="2" y="7" width="12" height="8" rx="2" fill="#3451b2"/>' +
    '<path d="M5 7V5a3 3 0 0 1 6 0v2" fill="none" stroke="#3451b2" stroke-width="2"/></svg>'
}
