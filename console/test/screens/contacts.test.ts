import '../page'
import { deepEqual } from 'node:assert/strict'
import { test } from 'node:test'
import { pairs } from '../../src/screens/contacts'

test('a name whose value is still to come is no wrong filter, but where another follows', () => {
  deepEqual(pairs('plan = '), { fields: [], others: [] })
  deepEqual(pairs('plan = pro, city ='), { fields: [['plan', 'pro']], others: [] })
  deepEqual(pairs('city = , plan = pro'), { fields: [['plan', 'pro']], others: ['city ='] })
  deepEqual(pairs('plan'), { fields: [], others: ['plan'] })
})
