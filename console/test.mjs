// Bundles what is in test/ as the console itself is bundled, and runs it in Node.js: what needs no browser.
import { build } from 'esbuild'
import { spawnSync } from 'node:child_process'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { AS_ALWAYS } from './bundle.mjs'

const TESTS = join(import.meta.dirname, 'test')
const BUILT = join(import.meta.dirname, 'node_modules', '.tests')

const names = (await readdir(TESTS, { recursive: true })).filter(name => name.endsWith('.test.ts'))
await rm(BUILT, { recursive: true, force: true })
await build({
  ...AS_ALWAYS,
  entryPoints: names.map(name => join(TESTS, name)),
  outbase: TESTS,
  outdir: BUILT,
  platform: 'node',
  outExtension: { '.js': '.mjs' },
  sourcemap: 'inline',
})
const files = names.map(name => join(BUILT, name.replace(/\.ts$/, '.mjs')))
const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-reporter=spec', ...files], {
  stdio: 'inherit',
})
process.exit(status ?? 1)
