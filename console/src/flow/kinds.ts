// The kinds of steps, their members and ports, as GET /definition-schema describes them.
import { raw } from '../api'
import { once } from '../data'

export interface Schema {
  $ref?: string
  type?: string | string[]
  enum?: unknown[]
  const?: unknown
  anyOf?: Schema[]
  oneOf?: Schema[]
  items?: Schema
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: boolean | Schema
  description?: string
  examples?: unknown[]
  minimum?: number
  maximum?: number
  discriminator?: { mapping: Record<string, string> }
  'x-ports'?: Ports
}
/** `open` ports are there, wired or not; those `given` only with the member of their name; `wired` ones count only then.
 * In steps, an open port without an arm goes on at the step after, but for those that end the run. */
export interface Ports {
  open: string[]
  wired: string[]
  given: string[]
  ends: string[]
  each: string | null
  about: Record<string, string>
}
export interface Kind {
  name: string
  about: string
  schema: Schema
  ports: Ports
}
export interface Kinds {
  all: ReadonlyMap<string, Kind>
  triggers: ReadonlyMap<string, Schema>
  defs: Record<string, Schema>
}

export const TRIGGER = 'trigger'
const NONE: Ports = { open: [], wired: [], given: [], ends: [], each: null, about: {} }
const OF_TRIGGER: Ports = { ...NONE, open: ['next'] }

const named = (ref: string) => ref.slice(ref.lastIndexOf('/') + 1)

function read(document: { $defs: Record<string, Schema> }): Kinds {
  const defs = document.$defs
  const mapping = defs.Step?.discriminator?.mapping ?? {}
  const all = Object.entries(mapping).map(([name, ref]) => {
    const schema = defs[named(ref).replace(/Step$/, 'Data')] ?? {}
    return [name, { name, about: schema.description ?? '', schema, ports: schema['x-ports'] ?? NONE }] as const
  })
  const triggers = (defs.WritableTrigger?.oneOf ?? []).map(one => defs[named(one.$ref ?? '')] ?? {})
  return {
    all: new Map(all),
    triggers: new Map(triggers.map(each => [String(each.properties?.source?.const), each])),
    defs,
  }
}

const reading = once()
/** Read once per tab: it changes with the version of the service alone. */
export const kinds = () => reading('', async () => read(await (await raw('/definition-schema')).json()))

export const portsOf = (all: Kinds, kind: string): Ports =>
  kind === TRIGGER ? OF_TRIGGER : (all.all.get(kind)?.ports ?? NONE)

const isBlank = (schema: Schema) =>
  schema.type === 'null' || schema.const === '' || (schema.enum?.length === 1 && schema.enum[0] === '')

/** A schema without a reference, null and the empty text: what is really meant. */
export function plain(schema: Schema, defs: Record<string, Schema>): Schema {
  const about = schema.description ? { description: schema.description } : {}
  if (schema.$ref && named(schema.$ref) !== 'Condition')
    return { ...plain(defs[named(schema.$ref)] ?? {}, defs), ...about }
  const kept = schema.anyOf?.filter(one => !isBlank(one)) ?? []
  if (kept.length === 1) return { ...plain(kept[0]!, defs), ...about }
  const { enum: options, type } = schema
  return {
    ...schema,
    ...(options ? { enum: options.filter(one => one !== '' && one !== null) } : {}),
    ...(Array.isArray(type) && type.length === 2 && type.includes('null')
      ? { type: type.find(one => one !== 'null')! }
      : {}),
  }
}

export const isCondition = (schema: Schema) => schema.$ref !== undefined && named(schema.$ref) === 'Condition'

/** What a new step of a kind begins with, so that its ports are there; the check asks for the rest. */
export function begun(kind: Kind): Record<string, unknown> {
  const usual: Record<string, Record<string, unknown>> = {
    send_message: { channel: 'email' },
    wait: { duration: 'P1D' },
    throttle: { limit: 1, window: 'P1D' },
    http_request: { method: 'POST' },
    split: {
      variants: [
        { port: 'a', weight: 50 },
        { port: 'b', weight: 50 },
      ],
    },
  }
  return usual[kind.name] ?? (kind.ports.each ? { [kind.ports.each]: [{}] } : {})
}
