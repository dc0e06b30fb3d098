import '../page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { pairs, stands } from '../../src/screens/contacts'

test('a name whose value is still to come is no wrong filter, but where another follows', () => {
  deepEqual(pairs('plan = '), { fields: [], others: [] })
  deepEqual(pairs('plan = pro, city ='), { fields: [['plan', 'pro']], others: [] })
  deepEqual(pairs('city = , plan = pro'), { fields: [['plan', 'pro']], others: ['city ='] })
  deepEqual(pairs('plan'), { fields: [], others: ['plan'] })
})

test('a change stands there although the service keeps no digits of its numbers', () => {
  const draft = { email: 'a@example.com', phone: '', firstName: '', lastName: '', timezone: '', locale: '', tags: '' }
  const now = { email: 'a@example.com', tags: [], metadata: { price: 83.4, plan: 'pro' } } as unknown as Parameters<
    typeof stands
  >[0]
  equal(stands(now, { ...draft, metadata: 'price = 83.40\nplan = pro' }), true)
  equal(stands(now, { ...draft, metadata: 'price = 83.5\nplan = pro' }), false)
})
