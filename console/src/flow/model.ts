// A definition while it is edited: what it shows as cards and links, and every change as a new one.
import { isObject, numberOf, parse, pretty, same, textOf } from '../exact'
import { TRIGGER, begun, portsOf, type Kinds } from './kinds'

export type Json = Record<string, unknown>
export type Key = string | number
export type Shape = 'steps' | 'graph'
export type Spot = { x: number; y: number }
export interface Edge extends Json {
  id?: string
  source: string
  target: string
  sourceHandle?: string | null
}
export interface Node extends Json {
  id: string
  type: string
  position?: Spot
  data?: Json
}
export type Graph = Json & { nodes: Node[]; edges: Edge[] }
export interface Doc {
  shape: Shape
  name: string
  casesGate: boolean
  trigger: Json
  steps: Json[]
  graph: Graph
}

/** One box. `place` leads to its node or step in the definition, `config` to its members. */
export interface Card {
  id: string
  kind: string
  place: Key[]
  config: Key[]
  members: Json
  ports: string[]
}
export interface Link {
  source: string
  port: string
  target: string
}
export interface View {
  cards: Card[]
  links: Link[]
}

const READ_ONLY = ['webhookUrl', 'signingSecretSet', 'signingSecretLast4']
const listed = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : [])
/** Whatever stands where a name belongs, as text. */
const named = (value: unknown) => textOf(value ?? null)
const isBlank = (value: unknown) => value == null || value === ''

/** What is stored, as it is edited: the trigger in one place, and nothing that cannot be written. */
export function docOf(stored: {
  name: string
  casesGate: boolean
  trigger: object
  steps?: unknown
  graph?: unknown
}): Doc {
  const trigger = Object.fromEntries(
    Object.entries(stored.trigger).filter(([name, value]) => !READ_ONLY.includes(name) && value !== null),
  )
  const graph = isObject(stored.graph) ? stored.graph : {}
  const nodes = listed(graph.nodes).map(node =>
    node.type === TRIGGER && 'data' in node ? { ...node, data: {} } : node,
  ) as Node[]
  return {
    shape: stored.graph === undefined ? 'steps' : 'graph',
    name: stored.name,
    casesGate: stored.casesGate,
    trigger,
    steps: listed(stored.steps),
    graph: { ...graph, nodes, edges: listed(graph.edges) as Edge[] },
  }
}

/** A merge patch: what is gone is taken away by null, within objects too. */
const patch = (before: Json, now: Json): Json => ({
  ...Object.fromEntries(
    Object.keys(before)
      .filter(name => !(name in now))
      .map(name => [name, null]),
  ),
  ...Object.fromEntries(
    Object.entries(now).map(([name, value]) => [
      name,
      isObject(value) && isObject(before[name]) ? patch(before[name], value) : value,
    ]),
  ),
})

/** As the API takes it; as a change of `before`, if that is given. */
export function written(
  doc: Doc,
  before?: Doc,
): { name: string; casesGate: boolean; trigger: Json; steps?: Json[]; graph?: Graph } {
  const common = {
    name: doc.name,
    casesGate: doc.casesGate,
    trigger: before ? patch(before.trigger, doc.trigger) : doc.trigger,
  }
  return doc.shape === 'steps' ? { ...common, steps: doc.steps } : { ...common, graph: doc.graph }
}

// --- what is seen ---

const portOf = (edge: Edge) => textOf(edge.sourceHandle || 'next')
const leaves = (edge: Edge, { id, port }: Exit) => named(edge.source) === id && portOf(edge) === port
/** Where a node lies, to reckon with. */
export const spotOf = ({ position }: Node) => ({ x: numberOf(position?.x), y: numberOf(position?.y) })

const stem = (fork: string) => fork.replace(/s$/, '')

/** The ports that are there, as the interpreter counts them. */
function open(all: Kinds, kind: string, members: Json): string[] {
  const ports = portsOf(all, kind)
  const forks = ports.each
    ? listed(members[ports.each]).map((item, index) => textOf(item.port || `${stem(ports.each!)}${index + 1}`))
    : []
  const isThere = (port: string) =>
    !ports.given.includes(port) || !isBlank(members.after) || (!isBlank(members[port]) && !Array.isArray(members[port]))
  return [...forks, ...ports.open.filter(isThere)]
}

export function view(doc: Doc, all: Kinds): View {
  return doc.shape === 'graph' ? ofGraph(doc, all) : ofSteps(doc, all)
}

function ofGraph(doc: Doc, all: Kinds): View {
  const cards = doc.graph.nodes.map((node, index) => {
    const isTrigger = node.type === TRIGGER
    const members = isTrigger ? doc.trigger : isObject(node.data) ? node.data : {}
    const place = ['graph', 'nodes', index]
    return {
      id: named(node.id),
      kind: named(node.type),
      place,
      config: isTrigger ? ['trigger'] : [...place, 'data'],
      members,
      ports: [...open(all, named(node.type), members), ...portsOf(all, named(node.type)).wired],
    }
  })
  return {
    cards,
    links: doc.graph.edges.map(edge => ({
      source: named(edge.source),
      port: portOf(edge),
      target: named(edge.target),
    })),
  }
}

/** Steps by the names that runs know them by, with the links by which arms join again. */
function ofSteps(doc: Doc, all: Kinds): View {
  const cards: Card[] = [
    { id: TRIGGER, kind: TRIGGER, place: ['trigger'], config: ['trigger'], members: doc.trigger, ports: ['next'] },
  ]
  const links: Link[] = []
  const taken = new Set<string>([TRIGGER])
  const name = (step: Json, path: string) => {
    const own = typeof step.id === 'string' && step.id ? step.id : path
    let id = own
    for (let n = 2; taken.has(id); n++) id = `${own} (${n})`
    taken.add(id)
    return id
  }
  const sequence = (raw: unknown, place: Key[], path: string, after: string | null): string | null => {
    const list = listed(raw)
    const names = list.map((step, index) => name(step, `${path}[${index}]`))
    list.forEach((step, index) =>
      walk(step, names[index]!, [...place, index], `${path}[${index}]`, names[index + 1] ?? after),
    )
    return names[0] ?? after
  }
  const walk = (step: Json, id: string, place: Key[], path: string, follow: string | null) => {
    const kind = named(step.type)
    const ports = portsOf(all, kind)
    const there = open(all, kind, step)
    const targets = new Map<string, string | null>(
      there.filter(port => !ports.ends.includes(port)).map(port => [port, follow]),
    )
    cards.push({ id, kind, place, config: place, members: step, ports: [...there, ...ports.wired] })
    for (const port of [...ports.open, ...ports.wired])
      if (listed(step[port]).length)
        targets.set(port, sequence(step[port], [...place, port], `${path}.${port}`, follow))
    if (ports.each)
      listed(step[ports.each]).forEach((item, index) => {
        const port = there[index]!
        if (listed(item.steps).length)
          targets.set(
            port,
            sequence(
              item.steps,
              [...place, ports.each!, index, 'steps'],
              `${path}.${ports.each}[${index}].steps`,
              follow,
            ),
          )
      })
    for (const [port, target] of targets) if (target) links.push({ source: id, port, target })
  }
  const entry = sequence(doc.steps, ['steps'], 'steps', null)
  if (entry) links.unshift({ source: TRIGGER, port: 'next', target: entry })
  return { cards, links }
}

const escaped = (key: Key) => String(key).replaceAll('~', '~0').replaceAll('/', '~1')
export const pointer = (keys: readonly Key[]) => keys.map(key => `/${escaped(key)}`).join('')

/** Finds the card that a finding is about: the innermost whose place leads there. An edge's is the node that it leaves. */
export function locator(doc: Doc, seen: View): (at: string) => Card | undefined {
  const known = new Map(
    seen.cards.flatMap(
      card =>
        [
          [pointer(card.place), card],
          [pointer(card.config), card],
        ] as const,
    ),
  )
  const byId = new Map(seen.cards.map(card => [card.id, card]))
  return at => {
    const edge = /^\/graph\/edges\/(\d+)/.exec(at)
    if (edge) return byId.get(named(doc.graph.edges[Number(edge[1])]?.source))
    for (let rest = at; rest; rest = rest.slice(0, rest.lastIndexOf('/'))) if (known.has(rest)) return known.get(rest)
    return undefined
  }
}

// --- changes ---

/** The pointer of what differs: as deep as all that differs lies within one value. */
export function placeOf(before: unknown, after: unknown): string {
  const [one, other] = [before ?? {}, after ?? {}] as [Json, Json] // of a member that comes or goes, its first member
  if (!(Array.isArray(one) && Array.isArray(other)) && !(isObject(one) && isObject(other))) return ''
  const [key, ...more] = [...new Set([...Object.keys(one), ...Object.keys(other)])].filter(
    name => !same(one[name], other[name]),
  )
  return key === undefined || more.length ? '' : `/${escaped(key)}${placeOf(one[key], other[key])}`
}

/** With another value at the place; undefined takes a member away. */
export function put<T>(root: T, [key, ...rest]: readonly Key[], value: unknown): T {
  if (key === undefined) return value as T
  if (Array.isArray(root)) return root.map((item, index) => (index === key ? put(item, rest, value) : item)) as T
  const old = (isObject(root) ? root : {}) as Json
  const { [key]: inner, ...others } = old
  if (!rest.length && value === undefined) return others as T
  return { ...old, [key]: put(inner, rest, value) } as T
}
export const at = (root: unknown, keys: readonly Key[]): unknown =>
  keys.reduce<unknown>((value, key) => (value as Json | undefined)?.[key as string], root)

/** Steps that stand within these ones too. */
function* within(steps: readonly Json[]): Generator<Json> {
  for (const step of steps) {
    yield step
    for (const value of Object.values(step))
      for (const inner of listed(value)) {
        if ('steps' in inner) yield* within(listed(inner.steps))
        else if (typeof inner.type === 'string') yield* within([inner])
      }
  }
}

const idsOf = (doc: Doc) =>
  new Set(
    doc.shape === 'graph'
      ? doc.graph.nodes.map(node => named(node.id))
      : [TRIGGER, ...[...within(doc.steps)].map(step => textOf(step.id ?? ''))],
  )
function fresh(taken: Set<string>, wanted: string): string {
  const base = wanted.replace(/_\d+$/, '')
  let id = base
  for (let n = 2; taken.has(id); n++) id = `${base}_${n}`
  taken.add(id)
  return id
}

export interface Exit {
  id: string
  port: string
}
export interface Changed {
  doc: Doc
  ids: string[]
}

/** A new step of that kind: behind a port of a card, in what is there already; or on its own. */
export function added(doc: Doc, all: Kinds, kind: string, from: Exit | null, near?: Spot): Changed {
  const id = fresh(idsOf(doc), kind)
  const found = all.all.get(kind)
  const config = found ? begun(found) : {}
  if (doc.shape === 'steps') return { doc: inserted(doc, all, from, [{ id, type: kind, ...config }]), ids: [id] }
  const node: Node = { id, type: kind, position: clear(doc, near ?? { x: 0, y: 0 }), data: config }
  const nodes = [...doc.graph.nodes, node]
  const next = { ...doc, graph: { ...doc.graph, nodes } }
  if (!from) return { doc: next, ids: [id] }
  const before = doc.graph.edges.find(edge => leaves(edge, from))
  const wired = connected(next, from, id)
  const onward = open(all, kind, config)[0]
  return { doc: before && onward ? connected(wired, { id, port: onward }, before.target) : wired, ids: [id] }
}

/** A spot on which nothing lies yet. */
function clear(doc: Doc, wanted: Spot) {
  let { x, y } = wanted
  const isTaken = () =>
    doc.graph.nodes.some(node => {
      const spot = spotOf(node)
      return node.position && Math.abs(spot.x - x) < 200 && Math.abs(spot.y - y) < 70
    })
  for (let tries = 0; isTaken() && tries < 500; tries++) x += 250
  return { x, y }
}

/** An edge from that port, instead of the one that left it; to nothing takes it away. */
export function connected(doc: Doc, from: Exit, target: string | null): Doc {
  const isOld = (edge: Edge) => leaves(edge, from)
  const old = doc.graph.edges.find(isOld)
  const rest = doc.graph.edges.filter(edge => !isOld(edge))
  if (target === null) return { ...doc, graph: { ...doc.graph, edges: rest } }
  const id = old?.id ?? fresh(new Set(doc.graph.edges.map(edge => textOf(edge.id))), `${from.id}-${from.port}`)
  const edge: Edge = {
    ...(old ?? {}),
    id,
    source: from.id,
    target,
    ...(from.port === 'next' ? {} : { sourceHandle: from.port }),
  }
  return {
    ...doc,
    graph: { ...doc.graph, edges: old ? doc.graph.edges.map(one => (one === old ? edge : one)) : [...rest, edge] },
  }
}

/** Steps behind a port: in its arm, or in the list after the step; at the end without one. */
function inserted(doc: Doc, all: Kinds, from: Exit | null, steps: readonly Json[]): Doc {
  const card = from && ofSteps(doc, all).cards.find(one => one.id === from.id)
  if (!card || !from) return { ...doc, steps: [...doc.steps, ...steps] }
  if (card.kind === TRIGGER) return { ...doc, steps: [...steps, ...doc.steps] }
  const ports = portsOf(all, card.kind)
  const fork = ports.each ? open(all, card.kind, card.members).indexOf(from.port) : -1
  const items = ports.each ? listed(card.members[ports.each]).length : 0
  if (from.port === 'next') {
    const index = Number(card.place.at(-1)) + 1
    const list = card.place.slice(0, -1)
    return put(doc, list, (at(doc, list) as Json[]).toSpliced(index, 0, ...steps))
  }
  const arm = fork >= 0 && fork < items ? [...card.place, ports.each!, fork, 'steps'] : [...card.place, from.port]
  const old = at(doc, arm)
  // A length in the place of the arm moves to the member that says the same beside one.
  const moved = typeof old === 'string' ? put(doc, [...card.place, 'after'], old) : doc
  return put(moved, arm, [...steps, ...listed(old)])
}

/** Without these; what led to one leads to what came after it. */
export function removed(doc: Doc, all: Kinds, ids: readonly string[]): Doc {
  if (doc.shape === 'steps') {
    const places = outermost(
      ofSteps(doc, all).cards.filter(card => ids.includes(card.id) && card.kind !== TRIGGER),
    ).map(card => card.place)
    return places.reduceRight((rest, place) => {
      // of a list the last first: what stands before it keeps its place
      const list = place.slice(0, -1)
      return put(rest, list, (at(rest, list) as Json[]).toSpliced(Number(place.at(-1)), 1))
    }, doc)
  }
  return ids.reduce((rest, id) => {
    const onward = rest.graph.edges.find(
      edge => leaves(edge, { id, port: 'next' }) && named(edge.target) !== id,
    )?.target
    const edges = rest.graph.edges
      .filter(edge => named(edge.source) !== id && (named(edge.target) !== id || onward !== undefined))
      .map(edge => (named(edge.target) === id ? { ...edge, target: onward! } : edge))
    return { ...rest, graph: { ...rest.graph, nodes: rest.graph.nodes.filter(node => named(node.id) !== id), edges } }
  }, doc)
}

const outermost = (cards: readonly Card[]) =>
  cards.filter(
    card => !cards.some(other => other !== card && `${pointer(card.place)}/`.startsWith(`${pointer(other.place)}/`)),
  )

/** A step up or down within its list. */
export function moved(doc: Doc, card: Card, by: -1 | 1): Doc {
  const list = card.place.slice(0, -1),
    index = Number(card.place.at(-1))
  const steps = at(doc, list) as Json[]
  const step = steps[index],
    other = index + by
  if (!step || other < 0 || other >= steps.length) return doc
  return put(doc, list, steps.toSpliced(index, 1).toSpliced(other, 0, step))
}

/** Under another ID; a node's edges follow. */
export function renamed(doc: Doc, card: Card, id: string): Doc {
  const next = put(doc, [...card.place, 'id'], id || (doc.shape === 'steps' ? undefined : ''))
  if (doc.shape === 'steps') return next
  const edges = doc.graph.edges.map(edge => ({
    ...edge,
    source: named(edge.source) === card.id ? id : edge.source,
    target: named(edge.target) === card.id ? id : edge.target,
  }))
  return { ...next, graph: { ...next.graph, edges } }
}

export const placed = (doc: Doc, positions: Record<string, Spot>): Doc => ({
  ...doc,
  graph: {
    ...doc.graph,
    nodes: doc.graph.nodes.map(node => {
      const position = positions[named(node.id)]
      return position ? { ...node, position } : node
    }),
  },
})

// --- copied and pasted ---

interface Clip {
  tidings: Shape
  nodes?: Node[]
  edges?: Edge[]
  steps?: Json[]
}

/** As text, for the clipboard; "" for nothing that can be copied. */
export function copied(doc: Doc, all: Kinds, ids: readonly string[]): string {
  let clip: Clip
  if (doc.shape === 'graph') {
    const nodes = doc.graph.nodes.filter(node => ids.includes(named(node.id)) && node.type !== TRIGGER)
    const names = new Set(nodes.map(node => named(node.id)))
    if (!nodes.length) return ''
    clip = {
      tidings: 'graph',
      nodes,
      edges: doc.graph.edges.filter(edge => names.has(named(edge.source)) && names.has(named(edge.target))),
    }
  } else {
    const cards = outermost(ofSteps(doc, all).cards.filter(card => ids.includes(card.id) && card.kind !== TRIGGER))
    if (!cards.length) return ''
    clip = { tidings: 'steps', steps: cards.map(card => card.members) }
  }
  return pretty(clip)
}

/** With what was copied, under names of its own; null if the text is nothing of the kind. */
export function pasted(doc: Doc, all: Kinds, text: string, from: Exit | null): Changed | null {
  let clip: Clip
  try {
    clip = parse(text) as Clip
  } catch {
    return null
  }
  if (!isObject(clip) || clip.tidings !== doc.shape) return null
  const taken = idsOf(doc)
  if (doc.shape === 'steps') {
    const steps = listed(clip.steps)
    for (const step of within(steps)) if (step.id) step.id = fresh(taken, textOf(step.id))
    return { doc: inserted(doc, all, from, steps), ids: steps.map(step => textOf(step.id ?? '')).filter(Boolean) }
  }
  const names = new Map(listed(clip.nodes).map(node => [named(node.id), fresh(taken, named(node.id))]))
  const nodes = (listed(clip.nodes) as Node[]).map(node => {
    const { x, y } = spotOf(node)
    return { ...node, id: names.get(named(node.id))!, position: { x: x + 40, y: y + 60 } }
  })
  const edgeIds = new Set(doc.graph.edges.map(edge => textOf(edge.id)))
  const edges = (listed(clip.edges) as Edge[]).map(edge => ({
    ...edge,
    id: fresh(edgeIds, textOf(edge.id ?? 'edge')),
    source: names.get(named(edge.source)) ?? edge.source,
    target: names.get(named(edge.target)) ?? edge.target,
  }))
  return {
    doc: {
      ...doc,
      graph: { ...doc.graph, nodes: [...doc.graph.nodes, ...nodes], edges: [...doc.graph.edges, ...edges] },
    },
    ids: [...names.values()],
  }
}

// --- differences ---

type Step = { id: string; type: string }
export interface Difference {
  trigger: Record<string, unknown[]>
  nodes: {
    added: Step[]
    removed: Step[]
    changed: (Step & { members: Record<string, unknown[]> })[]
  }
  edges: { added: Link[]; removed: Link[] }
}

function membersOf(card: Card, all: Kinds, shape: Shape): Json {
  if (shape === 'graph') return card.members
  const ports = portsOf(all, card.kind)
  const arms = [...ports.open, ...ports.wired].filter(port => Array.isArray(card.members[port]))
  const kept = Object.entries(card.members).filter(([name]) => !['id', 'type', ...arms].includes(name))
  return Object.fromEntries(
    kept.map(([name, value]) => [
      name,
      name === ports.each ? listed(value).map(({ steps: _, ...item }) => item) : value,
    ]),
  )
}

function changes(before: Json, after: Json): Record<string, unknown[]> {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  return Object.fromEntries(
    names
      .filter(name => !same(before[name] ?? null, after[name] ?? null))
      .map(name => [name, [before[name] ?? null, after[name] ?? null]]),
  )
}

/** What became of one definition in another, as GET …/versions/:a/diff/:b answers it. */
export function difference(before: Doc, after: Doc, all: Kinds): Difference {
  const [one, other] = [view(before, all), view(after, all)]
  const steps = (seen: View) => new Map(seen.cards.filter(card => card.kind !== TRIGGER).map(card => [card.id, card]))
  const [old, now] = [steps(one), steps(other)]
  const brief = (card: Card) => ({ id: card.id, type: card.kind })
  const lacks = (links: Link[], link: Link) => !links.some(each => same(each, link))
  return {
    trigger: {
      ...changes(
        { 'its name': before.name, casesGate: before.casesGate },
        { 'its name': after.name, casesGate: after.casesGate },
      ),
      ...changes(before.trigger, after.trigger),
    },
    nodes: {
      added: [...now.values()].filter(card => !old.has(card.id)).map(brief),
      removed: [...old.values()].filter(card => !now.has(card.id)).map(brief),
      changed: [...now.values()]
        .filter(card => old.has(card.id))
        .map(card => ({
          ...brief(card),
          members: changes(membersOf(old.get(card.id)!, all, before.shape), membersOf(card, all, after.shape)),
        }))
        .filter(each => Object.keys(each.members).length),
    },
    edges: {
      added: other.links.filter(link => lacks(one.links, link)),
      removed: one.links.filter(link => lacks(other.links, link)),
    },
  }
}
