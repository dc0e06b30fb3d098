// Judges each body by its schema with ajv: {schemas, bodies: [[name, body]…]} in, [true, false…] out.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const Ajv = createRequire(process.argv[2] + '/')('ajv/dist/2020').default
const { schemas, bodies } = JSON.parse(readFileSync(0, 'utf8'))
const ajv = new Ajv({ strict: false, logger: false })
const validate = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, ajv.compile(schema)]))
process.stdout.write(JSON.stringify(bodies.map(([name, body]) => validate[name](body))))
