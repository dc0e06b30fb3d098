import '../page'
import { deepEqual } from 'node:assert/strict'
import { test } from 'node:test'
import { veiled } from '../../src/flow/kept'
import { docOf, type Json } from '../../src/flow/model'

const call = (headers: Json, more: Json = {}): Json => ({ type: 'http_request', headers, ...more })
const kept = (steps: Json[], nodes: Json[] = []) => {
  const doc = docOf({ name: 'Calls', casesGate: false, trigger: {}, steps, graph: { nodes, edges: [] } })
  return JSON.parse(veiled({ doc, tag: '"1"', base: doc })).doc
}

test('a credential that was typed is kept as the mask, by which what is stored stays', () => {
  const [first] = kept([call({ Authorization: 'Bearer new' }, { failed: [call({ 'X-Api-Key': 'new' })] })]).steps
  deepEqual([first.headers, first.failed[0].headers], [{ Authorization: '••••' }, { 'X-Api-Key': '••••' }])
  const { nodes } = kept([], [{ id: 'a', type: 'http_request', data: { headers: { apiKey: 'new' } } }]).graph
  deepEqual(nodes[0].data.headers, { apiKey: '••••' })
})

test('what is no credential of a call is kept as it is: other headers, none, data that is called so', () => {
  const steps = [
    call({ 'X-Compass': 'north', Cookie: '' }, { body: { headers: { token: 't' } } }),
    { type: 'start_workflow', data: { headers: { token: 't' } } },
  ]
  deepEqual(kept(steps).steps, steps)
})

test('headers that are being typed as JSON are none yet, and are kept as the mask', () => {
  const step = { type: 'http_request', headers: '{"Authorization": "Bearer n' }
  deepEqual(kept([step]).steps, [{ ...step, headers: '••••' }])
})
