import { deepEqual, equal, notEqual, rejects } from 'node:assert/strict'
import { test } from 'node:test'
import { answering } from './page'
import { ask, begin, isSignedIn, refused } from '../src/session'

const JSON_TYPE = { 'Content-Type': 'application/json' }
const RUNNING = () => Response.json({ code: 'idempotency_in_progress' }, { status: 409 })
const MADE = () => Response.json({}, { status: 201 })
const CUT = () => {
  throw new TypeError('connection reset')
}

let made = 0
/** An act that no test has done before. */
const act = () => {
  const body = JSON.stringify({ name: `New ${++made}` })
  return () => ask(new Request('https://tidings.example/templates', { method: 'POST', headers: JSON_TYPE, body }))
}
const keys = (asked: readonly Request[]) => asked.map(each => each.headers.get('Idempotency-Key'))

test('an act whose answer was lost is done again under its key', async () => {
  const press = act(),
    asked = answering(CUT, MADE)
  await rejects(press(), /cannot be reached/)
  equal((await press()).status, 201)
  equal(new Set(keys(asked)).size, 1)
})

test('what has no answer within a minute could not be reached, unless it sends a file or walks the trail', async () => {
  const later = globalThis.setTimeout,
    due: (() => void)[] = []
  globalThis.setTimeout = ((work: () => void) => due.push(work)) as unknown as typeof setTimeout
  const signals: AbortSignal[] = []
  globalThis.fetch = (_, init) =>
    new Promise((_, fail) => {
      signals.push(init!.signal!)
      init!.signal!.onabort = fail
    })
  const type = { 'Content-Type': 'text/csv' }
  void ask(new Request('https://tidings.example/contacts/import', { method: 'POST', headers: type, body: 'a' }))
  void ask(new Request('https://tidings.example/audit-logs/verify'))
  const asked = ask(new Request('https://tidings.example/flows'))
  while (signals.length < 3) await Promise.resolve()
  globalThis.setTimeout = later
  due.forEach(work => work())
  await rejects(asked, /cannot be reached/)
  deepEqual(
    signals.map(each => each.aborted),
    [false, false, true],
  )
})

test('what a proxy calls a failure is done again under its key', async () => {
  const press = act(),
    asked = answering(() => new Response('<h1>Bad gateway</h1>', { status: 502 }), MADE)
  equal((await press()).status, 502)
  equal((await press()).status, 201)
  equal(new Set(keys(asked)).size, 1)
})

test('an act that is pressed again while the first still runs keeps its key', async () => {
  const press = act(),
    asked = answering(CUT, RUNNING, MADE)
  await rejects(press(), /cannot be reached/)
  equal((await press()).status, 409)
  equal((await press()).status, 201)
  equal(new Set(keys(asked)).size, 1)
})

test('an act that was answered is another one the next time, and so is one that says something else', async () => {
  const press = act(),
    asked = answering(MADE, MADE, CUT, MADE)
  await press()
  await press()
  await rejects(press(), /cannot be reached/)
  await act()()
  equal(new Set(keys(asked)).size, 4)
})

test('what is deleted although the answer was lost is not missed the second time', async () => {
  const NONE = () => Response.json({ code: 'not_found' }, { status: 404 })
  const press = () => ask(new Request('https://tidings.example/contacts/con_1', { method: 'DELETE' }))
  const asked = answering(CUT, NONE, NONE)
  await rejects(press(), /cannot be reached/)
  equal((await press()).status, 204)
  equal((await press()).status, 404) // nothing of it is open any more
  deepEqual(keys(asked), [null, null, null])
})

test('what has not changed is shown as it was read', async () => {
  const read = () => ask(new Request('https://tidings.example/runs'))
  const tagged = { ...JSON_TYPE, ETag: '"1"' }
  const asked = answering(
    () => new Response('{"data":[]}', { headers: tagged }),
    () => new Response(null, { status: 304 }),
  )
  for (let look = 0; look < 2; look++) {
    const answer = await read()
    deepEqual([answer.status, answer.headers.get('ETag'), await answer.text()], [200, '"1"', '{"data":[]}'])
  }
  deepEqual(
    asked.map(each => each.headers.get('If-None-Match')),
    [null, '"1"'],
  )
})

const TOO_MANY = (seconds: string) => () =>
  Response.json(
    { code: 'rate_limited', detail: `Try again in ${seconds} s.` },
    { status: 429, headers: { 'Retry-After': seconds } },
  )

/** How long is waited for, which is over at once. */
function waits(): number[] {
  const pauses: number[] = []
  globalThis.setTimeout = ((then: () => void, pause: number) => {
    if (pause === 60_000) return // by then an answer is late
    pauses.push(pause)
    queueMicrotask(then)
  }) as typeof setTimeout
  return pauses
}

test('what is read too often is read again as soon as it may be', async () => {
  const pauses = waits(),
    asked = answering(TOO_MANY('3'), TOO_MANY('2'), () => Response.json({ data: [] }))
  equal((await ask(new Request('https://tidings.example/messages'))).status, 200)
  deepEqual([pauses, asked.length], [[3000, 2000], 3])
})

test('what cannot be read for long is refused, with how long', async () => {
  const pauses = waits(),
    asked = answering(TOO_MANY('40'), TOO_MANY('30'))
  const answer = await ask(new Request('https://tidings.example/messages'))
  deepEqual([answer.status, (await answer.json()).detail], [429, 'Try again in 30 s.'])
  deepEqual([pauses, asked.length], [[10_000], 2])
})

test('an act that comes too often is refused at once, and is done by whoever presses again', async () => {
  const pauses = waits(),
    press = act(),
    asked = answering(TOO_MANY('3'), MADE)
  equal((await press()).status, 429)
  equal((await press()).status, 201)
  deepEqual([pauses, asked.length], [[], 2])
})

test('an act whose answer was lost keeps its key when it is refused for the limit', async () => {
  const press = act(),
    asked = answering(CUT, TOO_MANY('3'), MADE, MADE)
  await rejects(press(), /cannot be reached/)
  equal((await press()).status, 429)
  equal((await press()).status, 201)
  await press()
  const [first, ...later] = keys(asked)
  deepEqual(
    later.map(key => key === first),
    [true, true, false],
  )
})

test('an act whose answer was lost keeps its key when the session cannot be renewed', async () => {
  const press = act(),
    asked = answering(CUT, () => new Response(null, { status: 401 }), CUT, MADE)
  await rejects(press(), /cannot be reached/)
  await rejects(press(), /cannot be reached/)
  equal((await press()).status, 201)
  const pressed = asked.filter(each => each instanceof Request)
  equal(pressed.length, 3)
  equal(new Set(keys(pressed)).size, 1)
})

test('what is asked by POST and changes nothing is read again too, and is no act', async () => {
  for (const path of ['/workflows/check?id=wf_1', '/segments/preview']) {
    const pauses = waits(),
      asked = answering(TOO_MANY('3'), MADE)
    equal(
      (await ask(new Request(`https://tidings.example${path}`, { method: 'POST', headers: JSON_TYPE, body: '{}' })))
        .status,
      201,
    )
    deepEqual([pauses, keys(asked)], [[3000], [null, null]])
  }
})

test('what somebody else typed before the page was loaded anew is forgotten', async () => {
  const kept: Record<string, string> = {
    'tidings.person': 'usr_ada',
    'tidings.draft.wsp_1.contact': '{}',
    'tidings.other': 'kept',
  }
  const methods = {
    getItem: (key: string) => kept[key] ?? null,
    setItem: (key: string, value: string) => {
      kept[key] = value
    },
    removeItem: (key: string) => {
      delete kept[key]
    },
  }
  const storage = new Proxy(kept, { get: (_, name) => methods[name as keyof typeof methods] })
  Object.defineProperty(globalThis, 'sessionStorage', { value: storage, configurable: true, writable: true })
  globalThis.fetch = async () => Response.json({ accessToken: 'old', workspace: { id: 'wsp_1' } })
  await begin('/auth/token', {})
  deepEqual(kept, { 'tidings.person': '', 'tidings.other': 'kept' })
})

test('a token that has run out is renewed by the cookie, and what was asked is asked again', async () => {
  const bearers: (string | null)[] = []
  globalThis.fetch = async (input, init) => {
    if (typeof input === 'string') {
      deepEqual([input, JSON.parse(init!.body as string)], ['/auth/refresh', { session: 'cookie' }])
      return Response.json({ accessToken: 'new', workspace: { id: 'wsp_1' } })
    }
    bearers.push((input as Request).headers.get('Authorization'))
    return new Response(null, { status: bearers.length === 1 ? 401 : 204 })
  }
  equal((await ask(new Request('https://tidings.example/runs'))).status, 204)
  notEqual(bearers[0], bearers[1])
  equal(bearers[1], 'Bearer new')
  equal(isSignedIn(), true)
})

test('a refusal says something, though a proxy gives a code alone', () => {
  for (const problem of [null, { code: 'overloaded' }, { code: 'overloaded', detail: '' }])
    equal(refused(503, problem).message, 'The service answered 503 without a reason.')
  equal(refused(429, { code: 'rate_limited', detail: 'Later.' }).message, 'Later.')
})
