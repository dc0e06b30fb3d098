// Bundles what is in test/ as the console itself is bundled, and runs it in Node.js: what needs no browser.
import { build } from 'esbuild'
import { spawnSync } from 'node:child_process'
import { readdir, readFile, rm } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { AS_ALWAYS } from './bundle.mjs'

const SOURCES = join(import.meta.dirname, 'src')
const TESTS = join(import.meta.dirname, 'test')
const BUILT = join(import.meta.dirname, 'node_modules', '.tests')

/** The modules that are loaded once they are wanted. */
async function later() {
  const found = new Set()
  for (const name of await readdir(SOURCES, { recursive: true }))
    if (/\.tsx?$/.test(name))
      for (const [, path] of (await readFile(join(SOURCES, name), 'utf8')).matchAll(/\bimport\('(\.[^']+)'\)/g))
        found.add(join(SOURCES, dirname(name), path))
  return [...found]
}

// Whoever opens the address of one has none of the others: each is loaded in a process of its own.
const BY_ITSELF = {
  name: 'by-itself',
  setup(of) {
    of.onResolve({ filter: /^later:/ }, ({ path }) => ({ path: path.slice('later:'.length), namespace: 'later' }))
    of.onLoad({ filter: /./, namespace: 'later' }, ({ path }) => ({
      resolveDir: TESTS,
      contents: `import './page'
import { test } from 'node:test'
test(${JSON.stringify(`${relative(SOURCES, path)} is loaded by itself`)}, () => import(${JSON.stringify(path)}))`,
    }))
  },
}

const names = (await readdir(TESTS, { recursive: true })).filter(name => name.endsWith('.test.ts'))
const entries = [
  ...names.map(name => ({ in: join(TESTS, name), out: name.replace(/\.ts$/, '') })),
  ...(await later()).map(path => ({ in: `later:${path}`, out: join('later', relative(SOURCES, path)) })),
]
await rm(BUILT, { recursive: true, force: true })
await build({
  ...AS_ALWAYS,
  entryPoints: entries,
  outdir: BUILT,
  platform: 'node',
  outExtension: { '.js': '.mjs' },
  sourcemap: 'inline',
  plugins: [BY_ITSELF],
})
const files = entries.map(({ out }) => join(BUILT, `${out}.mjs`))
const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-reporter=spec', ...files], {
  stdio: 'inherit',
})
process.exit(status ?? 1)
