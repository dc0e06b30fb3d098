import './page'
import { equal } from 'node:assert/strict'
import { test } from 'node:test'
import { triggerPath } from '../src/webhooks'

const PATHS = {
  'data.plan': 'trigger.data.plan',
  '["my key"]': 'trigger["my key"]',
  '["my key"].plan': 'trigger["my key"].plan',
  '[0].id': 'trigger[0].id',
}

for (const [path, whole] of Object.entries(PATHS))
  test(`${path} of a request is ${whole} of a run`, () => equal(triggerPath(path), whole))
