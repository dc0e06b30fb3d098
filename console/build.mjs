// Bundles src/ into app/web/dist with hashed names, packs each file once, and holds the budgets.
import { build } from 'esbuild'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { AS_ALWAYS } from './bundle.mjs'

const HERE = import.meta.dirname
const DIST = join(HERE, '..', 'app', 'web', 'dist')
const DRAFT = `${DIST}.new`
const SHELL = 60 * 1024 // bytes as gzip that the first screen may load
const CANVAS = 75 * 1024 // more for the flow editor
const CODE = 200 * 1024 // more for the code editor
const SOURCE = 415_000 // characters of TypeScript, blanks left out: as many however they are broken into lines
const PACKAGES = 8 // that the browser runs

await rm(DRAFT, { recursive: true, force: true })
await mkdir(DRAFT, { recursive: true })
const built = await build({
  ...AS_ALWAYS,
  entryPoints: [join(HERE, 'src/main.tsx')],
  outdir: DRAFT,
  splitting: true,
  minify: true,
  metafile: true,
  legalComments: 'none',
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  assetNames: '[name]-[hash]',
})

const sizes = new Map()
for (const name of await readdir(DRAFT)) {
  const packed = gzipSync(await readFile(join(DRAFT, name)), { level: 9 })
  await writeFile(join(DRAFT, `${name}.gz`), packed)
  sizes.set(name, packed.length)
}
const outputs = Object.entries(built.metafile.outputs)
const [script, entry] = outputs.find(([, output]) => output.entryPoint === 'src/main.tsx')
const names = { script: basename(script), style: basename(entry.cssBundle) }
const page = await readFile(join(HERE, 'index.html'), 'utf8')
await writeFile(join(DRAFT, 'index.html'), page.replace('{script}', names.script).replace('{style}', names.style))

// --- budgets ----------------------------------------------------------------------------------------

function loaded(path, seen = new Set()) {
  if (seen.has(path)) return seen
  seen.add(path)
  const imports = built.metafile.outputs[path].imports
  for (const { path: next, kind } of imports) if (kind === 'import-statement') loaded(next, seen)
  return seen
}
async function characters(directory) {
  let count = 0
  for (const each of await readdir(directory, { recursive: true, withFileTypes: true }))
    if (/\.tsx?$/.test(each.name) && each.name !== 'schema.d.ts')
      count += (await readFile(join(each.parentPath, each.name), 'utf8')).replace(/\s/g, '').length
  return count
}
const weight = paths => paths.reduce((sum, path) => sum + sizes.get(basename(path)), 0)
const shell = loaded(script)
const first = weight([...shell, entry.cssBundle])
const more = entryPoint => {
  const [chunk] = outputs.find(([, output]) => output.entryPoint === entryPoint)
  return weight([...loaded(chunk)].filter(path => !shell.has(path)))
}
// What is loaded once it is wanted is of no use if something of the first screen has it, too.
const wanted = new Set(outputs.map(([, { entryPoint }]) => entryPoint).filter(one => one !== 'src/main.tsx'))
const early = [...shell]
  .flatMap(path => Object.keys(built.metafile.outputs[path].inputs))
  .filter(one => wanted.has(one))
if (early.length) {
  console.error(`The first screen loads what should be loaded later: ${early.join(', ')}.`)
  process.exit(1)
}
const { dependencies } = JSON.parse(await readFile(join(HERE, 'package.json'), 'utf8'))
const budgets = [
  ['first screen, as gzip', first, SHELL, 'bytes'],
  ['with the flow editor', first + more('src/flow/editor.tsx'), SHELL + CANVAS, 'bytes'],
  ['the code editor alone', more('src/code_editor.ts'), CODE, 'bytes'],
  ['TypeScript', await characters(join(HERE, 'src')), SOURCE, 'characters'],
  ['packages in the browser', Object.keys(dependencies).length, PACKAGES, ''],
]
for (const [what, is, most, unit] of budgets)
  console.log(`${what.padEnd(24)} ${String(is).padStart(6)} of ${most} ${unit}`)
if (budgets.some(([, is, most]) => is > most)) {
  console.error('The console is over a budget; see console/README.md.')
  process.exit(1)
}
await rm(DIST, { recursive: true, force: true })
await rename(DRAFT, DIST)
