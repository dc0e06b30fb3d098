import { fire } from './page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { cleared, go, here, settle } from '../src/router'

const scrolled: number[] = []
const window = {
  scrollY: 0,
  innerHeight: 500,
  scrollTo: (_: number, down: number) => void scrolled.push(down),
  setTimeout: () => 1, // nobody waits here
  clearTimeout: () => {},
}
for (const [name, value] of Object.entries(window))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true })
Object.assign(document, { documentElement: { scrollHeight: 5000 } })

/** As the browser does it on the way back or forward, which tells the page afterwards. */
function traverse(state: unknown) {
  history.replaceState(state, '')
  fire('popstate')
}

function scroll(down: number) {
  Object.assign(globalThis, { scrollY: down })
  fire('scroll')
}

test('a place that somebody left right after the last scroll is found again, by the way back and the way forward', () => {
  go('/runs')
  scroll(40)
  go('/flows')
  const flows: unknown = history.state
  scroll(300)
  traverse({ entry: 0.25, down: 40 })
  scrolled.length = 0
  settle(true)
  deepEqual(scrolled, [40])
  fire('wheel')
  scroll(70)
  traverse(flows)
  settle(true)
  deepEqual(scrolled, [40, 300])
  traverse({ entry: 0.25, down: 40 })
  settle(true)
  deepEqual(scrolled, [40, 300, 70])
})

test('a place that was noted meanwhile goes before one that was kept', () => {
  go('/contacts')
  const contacts = history.state as object
  scroll(120)
  fire('pagehide') // from which a browser may bring the page back as it was
  scroll(20)
  go('/messages') // which notes it
  traverse({ ...contacts, down: 20 })
  scrolled.length = 0
  settle(true)
  deepEqual(scrolled, [20])
})

test('a list is shown whole again, and what else the address says stays', () => {
  go('/broadcasts/bro_1?status=SENT&reason=&contact=con_1')
  const query = () => new URLSearchParams(location.search)
  equal(cleared(query(), ['reason']), null)
  cleared(query(), ['status', 'reason'])!()
  deepEqual([here(), location.search], ['/broadcasts/bro_1', '?contact=con_1'])
  cleared(query())!()
  deepEqual([location.search, cleared(query())], ['', null])
})
