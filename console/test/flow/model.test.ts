import '../page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { parse, textOf } from '../../src/exact'
import type { Kinds, Ports, Schema } from '../../src/flow/kinds'
import {
  added,
  connected,
  copied,
  difference,
  docOf,
  locator,
  moved,
  pasted,
  placeOf,
  removed,
  renamed,
  spotOf,
  view,
  written,
  type Doc,
  type Json,
} from '../../src/flow/model'

const NONE: Ports = { open: [], wired: [], given: [], ends: [], each: null, about: {} }
const PORTS: Record<string, Partial<Ports>> = {
  add_tag: { open: ['next'] },
  wait: { open: ['next'] },
  exit: {},
  branch: { open: ['else'], each: 'cases' },
}
const ALL: Kinds = {
  all: new Map(
    Object.entries(PORTS).map(([name, ports]) => [
      name,
      { name, about: '', schema: {} as Schema, ports: { ...NONE, ...ports } },
    ]),
  ),
  triggers: new Map(),
  defs: {},
}
const IS_PRO = { path: 'trigger.data.plan', op: 'eq', value: 'pro' }
const MET = { id: 'met', type: 'add_tag', tag: 'met' }
const PRO = { id: 'pro', type: 'add_tag', tag: 'pro' }
const PLAN = { id: 'plan', type: 'branch', cases: [{ port: 'pro', when: IS_PRO, steps: [PRO] }] }

const ofSteps = (...steps: Json[]): Doc =>
  docOf({ name: 'Steps', casesGate: false, trigger: { source: 'manual' }, steps })
function ofGraph(...links: [string, string, string][]): Doc {
  const ids = [...new Set(links.flatMap(([source, , target]) => [source, target]))]
  const nodes = ids.map((id, index) => ({
    id,
    type: id === 'trigger' ? id : 'add_tag',
    position: { x: 0, y: 140 * index },
    data: id === 'trigger' ? {} : { tag: id },
  }))
  const edges = links.map(([source, port, target], index) => ({
    id: `e${index}`,
    source,
    target,
    ...(port === 'next' ? {} : { sourceHandle: port }),
  }))
  return docOf({ name: 'Graph', casesGate: false, trigger: { source: 'manual' }, graph: { nodes, edges } })
}
const links = (doc: Doc) => view(doc, ALL).links.map(({ source, port, target }) => `${source} ${port} ${target}`)
const card = (doc: Doc, id: string) => view(doc, ALL).cards.find(each => each.id === id)!

test('the arms of steps join at the step after', () => {
  deepEqual(links(ofSteps(PLAN, MET)), ['trigger next plan', 'pro next met', 'plan pro pro', 'plan else met'])
})

test('a step is added behind a port, in its arm, and the last one at the end', () => {
  const { doc, ids } = added(ofSteps(PLAN, MET), ALL, 'wait', { id: 'plan', port: 'else' })
  deepEqual(ids, ['wait'])
  deepEqual(doc.steps, [{ ...PLAN, else: [{ id: 'wait', type: 'wait', duration: 'P1D' }] }, MET])
  const behind = added(doc, ALL, 'exit', { id: 'pro', port: 'next' }).doc
  deepEqual((behind.steps[0]!.cases as Json[])[0]!.steps, [PRO, { id: 'exit', type: 'exit' }])
  deepEqual(added(doc, ALL, 'wait', null).doc.steps.at(-1)!.id, 'wait_2')
})

test('a change is at the innermost place that holds all of it', () => {
  const doc = ofSteps(PLAN, MET),
    trigger = { source: 'manual' }
  equal(placeOf(doc, { ...doc, trigger: { ...trigger, tag: 'new' } }), '/trigger/tag')
  equal(placeOf(doc, { ...doc, trigger: { source: 'event', name: 'paid' } }), '/trigger')
  equal(
    placeOf(doc, { ...doc, trigger: { ...trigger, contactDefaults: { firstName: 'A' } } }),
    '/trigger/contactDefaults/firstName',
  )
  const other = { ...PLAN, cases: [{ ...PLAN.cases[0]!, when: { ...IS_PRO, value: 'team' } }] }
  equal(placeOf(doc, { ...doc, steps: [other, MET] }), '/steps/0/cases/0/when/value')
  equal(placeOf(doc, { ...doc, name: 'New', steps: [] }), '')
})

test('a step is moved within its list and not out of it', () => {
  const doc = ofSteps(PLAN, MET)
  deepEqual(moved(doc, card(doc, 'met'), -1).steps, [MET, PLAN])
  deepEqual(moved(doc, card(doc, 'met'), 1).steps, [PLAN, MET])
  deepEqual(moved(doc, card(doc, 'pro'), -1), doc)
})

test('what is pasted has names of its own, within its arms too', () => {
  const doc = ofSteps(PLAN, MET)
  const text = copied(doc, ALL, ['plan', 'pro', 'trigger'])
  const { doc: both, ids } = pasted(doc, ALL, text, { id: 'met', port: 'next' })!
  deepEqual(ids, ['plan_2'])
  deepEqual(
    both.steps.map(step => step.id),
    ['plan', 'met', 'plan_2'],
  )
  equal(((both.steps[2]!.cases as Json[])[0]!.steps as Json[])[0]!.id, 'pro_2')
  equal(pasted(ofGraph(['trigger', 'next', 'a']), ALL, text, null), null)
  equal(pasted(doc, ALL, 'nothing of the kind', null), null)
  equal(copied(doc, ALL, ['trigger']), '')
})

test('steps that are removed take what is in their arms with them', () => {
  deepEqual(removed(ofSteps(PLAN, MET), ALL, ['pro', 'met']).steps, [
    { ...PLAN, cases: [{ port: 'pro', when: IS_PRO, steps: [] }] },
  ])
  deepEqual(removed(ofSteps(PLAN, MET), ALL, ['plan', 'pro']).steps, [MET])
})

test('steps of several lists are removed, wherever they stand in them', () => {
  const gift = {
    ...PLAN,
    cases: [
      {
        port: 'pro',
        when: IS_PRO,
        steps: [
          { ...PRO, id: 'gift' },
          { ...PRO, id: 'card' },
        ],
      },
    ],
  }
  const doc = ofSteps({ ...MET, id: 'first' }, gift, MET)
  deepEqual(removed(doc, ALL, ['first', 'gift', 'card']).steps, [
    { ...PLAN, cases: [{ port: 'pro', when: IS_PRO, steps: [] }] },
    MET,
  ])
  const twice = ofSteps({ ...MET, id: 'first' }, { ...gift, id: 'one' }, PLAN)
  deepEqual(
    removed(twice, ALL, ['first', 'gift']).steps.map(step => (step.cases as Json[])[0]!.steps),
    [[{ ...PRO, id: 'card' }], [PRO]],
  )
})

test('a node is added between two that were connected', () => {
  const { doc, ids } = added(
    ofGraph(['trigger', 'next', 'a']),
    ALL,
    'wait',
    { id: 'trigger', port: 'next' },
    { x: 0, y: 0 },
  )
  deepEqual(links(doc), ['trigger next wait', 'wait next a'])
  deepEqual(ids, ['wait'])
  equal(doc.graph.nodes.find(node => node.id === 'wait')!.position!.x > 0, true) // on none that is there
})

test('a port has one line, which goes where it was led last, or is gone', () => {
  const doc = connected(ofGraph(['trigger', 'next', 'a'], ['a', 'next', 'b']), { id: 'trigger', port: 'next' }, 'b')
  deepEqual(links(doc), ['trigger next b', 'a next b'])
  deepEqual(links(connected(doc, { id: 'trigger', port: 'next' }, null)), ['a next b'])
})

test('what led to a node that is removed leads to what came after it', () => {
  deepEqual(links(removed(ofGraph(['trigger', 'next', 'a'], ['a', 'next', 'b']), ALL, ['a'])), ['trigger next b'])
  deepEqual(links(removed(ofGraph(['trigger', 'next', 'a'], ['a', 'next', 'b']), ALL, ['b'])), ['trigger next a'])
})

test('the lines of a node follow its new ID', () => {
  const doc = ofGraph(['trigger', 'next', 'a'], ['a', 'next', 'b'])
  deepEqual(links(renamed(doc, card(doc, 'a'), 'tea')), ['trigger next tea', 'tea next b'])
})

test('nodes are pasted with the lines between them', () => {
  const doc = ofGraph(['trigger', 'next', 'a'], ['a', 'next', 'b'])
  const { doc: both } = pasted(doc, ALL, copied(doc, ALL, ['trigger', 'a', 'b']), null)!
  deepEqual(links(both), ['trigger next a', 'a next b', 'a_2 next b_2'])
})

test('a finding is about the innermost box whose place it names, or the one that an edge leaves', () => {
  const steps = ofSteps(PLAN, MET)
  const find = locator(steps, view(steps, ALL))
  deepEqual(
    ['/steps/0/cases/0/steps/0/tag', '/steps/0/cases/0/when', '/trigger/source', '/name'].map(at => find(at)?.id),
    ['pro', 'plan', 'trigger', undefined],
  )
  const graph = ofGraph(['trigger', 'next', 'a'], ['a', 'next', 'b'])
  equal(locator(graph, view(graph, ALL))('/graph/edges/1/target')?.id, 'a')
})

test('a difference names what was added, removed and changed, and not what stands in arms', () => {
  const before = ofSteps(PLAN, MET)
  const after = ofSteps(
    { ...PLAN, cases: [{ port: 'pro', when: IS_PRO, steps: [{ ...PRO, tag: 'gold' }] }] },
    { id: 'pause', type: 'wait', duration: 'P1D' },
  )
  const { nodes, edges, trigger } = difference(before, { ...after, name: 'Other' }, ALL)
  deepEqual(nodes, {
    added: [{ id: 'pause', type: 'wait' }],
    removed: [{ id: 'met', type: 'add_tag' }],
    changed: [{ id: 'pro', type: 'add_tag', members: { tag: ['pro', 'gold'] } }],
  })
  equal(edges.added.length, 2)
  deepEqual(trigger, { 'its name': ['Steps', 'Other'] })
})

test('a change says what is gone from a trigger, within objects too, and nothing that cannot be written', () => {
  const stored = {
    source: 'inbound_webhook',
    webhookUrl: 'https://tidings.example/in/1',
    contactDefaults: { firstName: 'A', metadata: { seats: 3 } },
  }
  const before = docOf({ name: 'Steps', casesGate: false, trigger: stored, steps: [] })
  equal('webhookUrl' in before.trigger, false)
  const now = { ...before, trigger: { source: 'inbound_webhook', contactDefaults: { metadata: { city: 'Ulm' } } } }
  deepEqual(written(now, before).trigger, {
    source: 'inbound_webhook',
    contactDefaults: { firstName: null, metadata: { seats: null, city: 'Ulm' } },
  })
})

test('a number in the place of a name is one, with all its digits, and a position is reckoned with', () => {
  const seven = parse('7.0'),
    name = textOf(seven)
  const graph = {
    nodes: [
      { id: 'trigger', type: 'trigger' },
      { id: seven, type: 'add_tag', position: parse('{"x": 40.0, "y": 140.5}'), data: { tag: 'a' } },
    ],
    edges: [{ id: seven, source: 'trigger', target: seven, sourceHandle: null }],
  }
  const doc = docOf({ name: 'Graph', casesGate: false, trigger: { source: 'manual' }, graph })
  deepEqual(links(doc), [`trigger next ${name}`])
  deepEqual(spotOf(doc.graph.nodes[1]!), { x: 40, y: 140.5 })
  deepEqual(links(renamed(doc, card(doc, name), 'tea')), ['trigger next tea'])
  deepEqual(links(removed(doc, ALL, [name])), [])
  const { doc: both, ids } = pasted(doc, ALL, copied(doc, ALL, [name]), null)!
  deepEqual(ids, [`${name}_2`])
  deepEqual(both.graph.nodes.at(-1)!.position, { x: 80, y: 200.5 })
  equal(JSON.stringify(written(doc).graph!.nodes[1]!.position), `{"x":${textOf(parse('40.0'))},"y":140.5}`)
})
