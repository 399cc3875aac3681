import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { test } from 'node:test'

import { check } from './check.mjs'
import { readMoved, redirects } from './moved.mjs'
import { Site, slug, title } from './pages.mjs'
import { releases } from './version.mjs'

// tree writes files and returns their directory.
function tree(t, files) {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'site-'))
  t.after(() => fs.rmSync(root, { recursive: true }))
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(root, name)), { recursive: true })
    fs.writeFileSync(path.join(root, name), text)
  }
  return root
}

const flat = { 'README.md': '# Home\n[B](docs/b.md)', 'CHANGELOG.md': '# Changes', 'docs/a.md': '# A', 'docs/b.md': '# B', 'docs/adr/1.md': '# One', 'x/y.go': '' }
const deep = {
  'README.md': '# Home',
  'docs/README.md': '# Index\n[second](how-to/b.md), [first](how-to/c.md#x)',
  'docs/zoo/z.md': '# Z',
  'docs/adr/1.md': '# One',
  'docs/how-to/a.md': '# A',
  'docs/how-to/b.md': '# B',
  'docs/how-to/c.md': '# C',
  'docs/tutorials/README.md': '# All tutorials',
  'docs/tutorials/first.md': '# First'
}
const links = (site) => site.sidebar().map((g) => (g.items ? [g.text, ...g.items.map((i) => i.link)] : g.link))

test('the sidebar has the directories as groups, and pages in the order of the index', (t) => {
  assert.deepEqual(links(new Site(tree(t, flat))), ['/', ['Guide', '/b.md', '/a.md'], ['Decisions', '/adr/1.md'], ['Project', '/project/changelog.md']])
  assert.deepEqual(links(new Site(tree(t, deep))), ['/',
    ['Tutorials', '/tutorials/', '/tutorials/first.md'], ['How-to guides', '/how-to/b.md', '/how-to/c.md', '/how-to/a.md'], ['Decisions', '/adr/1.md'],
    ['Zoo', '/zoo/z.md'], ['Project', '/project/readme.md']])
})

test('two pages cannot have one address', (t) => {
  assert.throws(() => new Site(tree(t, { 'README.md': '# R', 'docs/README.md': '# D', 'docs/index.md': '# I' })), /have one address: index.md/)
})

test('a link leads to a page, or to the repository, or is an error', (t) => {
  const site = new Site(tree(t, flat))
  const github = 'https://github.com/pglatch/pglatch'
  for (const [href, want] of Object.entries({
    'b.md#x': '/b.md#x', '../README.md': '/', '../CHANGELOG.md': '/project/changelog.md', adr: '/adr/1.md', 'adr/': '/adr/1.md', '#here': '#here',
    'https://example.com/a': 'https://example.com/a', 'mailto:a@example.com': 'mailto:a@example.com',
    '../x/y.go#L7': `${github}/blob/main/x/y.go#L7`, '../x': `${github}/tree/main/x`, '..': github
  })) assert.equal(site.resolve('docs/a.md', href), want, href)
  for (const href of ['c.md', '../x/z.go', '../../elsewhere', 'adr/2.md']) assert.throws(() => site.resolve('docs/a.md', href), /docs\/a.md: .* leads nowhere/, href)
})

test('a title is plain text, and not from a block of code', () => {
  assert.equal(title('```sh\n# comment\n```\n\n# The `pglatch` [command](cli.md) #\n# Next'), 'The pglatch command')
  assert.throws(() => title('no heading'), /no heading/)
})

test('anchors are those of GitHub', () => {
  for (const [heading, want] of Object.entries({ "What PostgreSQL's tools show": 'what-postgresqls-tools-show', 'It is 3 a.m.': 'it-is-3-am', 'A — B_c-d': 'a--b_c-d', 'Größe 5 %': 'größe-5-' })) {
    assert.equal(slug(heading), want)
    assert.equal(slug(want), want, 'twice')
  }
})

test('a page that moved leaves a page that leads to its new address', (t) => {
  const root = tree(t, deep)
  const site = new Site(root)
  assert.deepEqual(redirects(site, readMoved(root)), [], 'without the file')
  fs.writeFileSync(path.join(root, 'docs/moved.json'), '{}')
  assert.deepEqual(redirects(site, readMoved(root)), [])
  const [a, b] = redirects(site, {
    'old/a.md': 'how-to/a.md#some-heading', 'docs/b.md': 'docs/README.md', 'docs/b.md#one': 'how-to/b.md#x', 'b.md#two': 'docs/tutorials/README.md'
  })
  assert.equal(a.name, 'old/a.html')
  assert.match(a.content, /content="0; url=\.\.\/how-to\/a\.html#some-heading"/)
  assert.match(a.content, /<a id="new" href="\.\.\/how-to\/a\.html#some-heading">/)
  assert.equal(b.name, 'b.html')
  assert.match(b.content, /content="0; url=index\.html"/)
  assert.match(b.content, /<a id="#one" href="how-to\/b\.html#x">/)
  assert.match(b.content, /<a id="#two" href="tutorials\/index\.html">/)
  assert.throws(() => redirects(site, { 'a.md#x': 'how-to/a.md' }), /docs\/a\.md has no new address/)
  assert.throws(() => redirects(site, { 'a.md': 'b.md' }), /b\.md is no page/)
  assert.throws(() => redirects(site, { 'how-to/a.md': 'how-to/b.md' }), /is still a page/)
  assert.throws(() => redirects(site, { 'a.png': 'how-to/b.md' }), /was no page/)
})

test('the check finds what is broken', (t) => {
  const dir = tree(t, {
    'index.html': '<h2 id="here&amp;there"></h2><a href="/p/a/b.html#there">x</a><a href="#here&amp;there"></a><a href="a/b.html"></a><img src="/p/i.png"><a href="https://x"></a>',
    'a/b.html': '<i id="there"></i><a href="../">up</a><script src="/p/i.png">"<a href=\'no\'>"</script>',
    'i.png': ''
  })
  assert.deepEqual(check(dir, '/p/'), [])
  fs.writeFileSync(path.join(dir, 'bad.html'), '<a href="/p/none.html"></a><a href="a/b.html#none"></a><a href="#none"></a><img src="/i.png"><a href="/p/a/"></a>')
  assert.deepEqual(check(dir, '/p/'), [
    'bad.html: /p/none.html leads to no file', 'bad.html: a/b.html#none leads to no element of a/b.html', 'bad.html: #none leads to no element of bad.html',
    'bad.html: /i.png is outside of /p/', 'bad.html: /p/a/ leads to no file'
  ])
})

test('releases are the sections of the changelog', (t) => {
  const root = tree(t, { 'CHANGELOG.md': '## Unreleased\n\n## 0.2.0 - 2027-01-02\n\n## 0.1.0 - 2026-12-01\n' })
  assert.deepEqual(releases(root).map((r) => r.text), ['v0.2.0', 'v0.1.0'])
  assert.match(releases(root)[1].link, /\/tree\/v0\.1\.0\/docs$/)
  assert.deepEqual(releases(tree(t, {})), [])
})
