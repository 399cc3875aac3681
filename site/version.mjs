// The versions that the navigation shows.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

import { repository } from './pages.mjs'

// current returns the name of this version: its tag, or the branch with the commit, or "main" outside of a clone.
export function current(root) {
  try {
    const name = execFileSync('git', ['-C', root, 'describe', '--tags', '--always'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
    return name.startsWith('v') ? name : `main (${name})`
  } catch {
    return 'main'
  }
}

// releases returns the versions that the changelog lists, the newest first, with the address of their documentation.
export function releases(root) {
  const file = path.join(root, 'CHANGELOG.md')
  const changelog = fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : ''
  return [...changelog.matchAll(/^## (\d+\.\d+\.\d+\S*) - /gm)].map(([, version]) => ({ text: `v${version}`, link: `${repository}/tree/v${version}/docs` }))
}
