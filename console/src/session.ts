// The session: an access token in memory, and a refresh token in a cookie that no script reads.
import type { components } from './schema'

type Schemas = components['schemas']
export type SignedIn = Schemas['SignedIn']
export type Me = Schemas['Me']

const meta = (name: string) => document.querySelector<HTMLMetaElement>(`meta[name=${name}]`)?.content ?? ''
const PREFIX = meta('prefix')
const FEATURES = meta('features').split(' ')
export const at = (path: string) => PREFIX + path
/** What this installation has: `sandbox`, `sign-on`, `registration`. */
export const has = (feature: string) => FEATURES.includes(feature)

/** An error of the API (RFC 9457), or that the service could not be reached. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly errors: readonly { pointer: string; message: string }[] = [],
    readonly requestId = '',
  ) {
    super(detail)
  }
}

type Problem = Partial<Refusal> & { detail?: string }

/** What was answered with this status; a proxy's page is no problem of ours. */
export function refused(status: number, problem: unknown): Refusal {
  const { code, detail, errors, requestId } = (problem ?? {}) as Problem
  const none = `The service answered ${status} without a reason.` // what says nothing is shown nowhere
  return code ? new Refusal(status, code, detail || none, errors, requestId) : new Refusal(status, 'unreadable', none)
}

export const refusal = async (response: Response): Promise<Refusal> =>
  refused(response.status, await response.json().catch(() => null))

export const unreachable = () =>
  new Refusal(0, 'unreachable', 'The service cannot be reached. Nothing you typed is lost; try again.')

const LONGEST_MS = 60_000 // that a request waits for its answer
const SLOW = '/audit-logs/verify' // answers once it has walked the whole trail

let token = ''
let workspace = ''
let person = ''
let asking: Promise<boolean> | null = null
let signingIn: Promise<void> | null = null
let signedIn = () => {}
let showSignIn: (isWanted: boolean) => void = () => {}

/** Called once by the page: what shows the sign-in form over whatever is open, and takes it away. */
export const whenSessionEnds = (show: (isWanted: boolean) => void) => {
  showSignIn = show
}
export const isSignedIn = () => token !== ''
export const currentWorkspace = () => workspace
const LAST = 'tidings.workspace' // where this browser was last
const PERSON = 'tidings.person' // who typed what this tab keeps, also before the page was loaded anew

const DRAFTS = 'tidings.draft.'
/** Where a draft is kept for this tab: what is typed in one workspace is of no other. */
export const draftKey = (name: string) => `${DRAFTS}${workspace}.${name}`
const drafts = () => Object.keys(sessionStorage).filter(key => key.startsWith(DRAFTS))
const isTyped = (key: string): boolean => {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? '').isGiven !== true
  } catch {
    return true
  }
}
/** Whether anybody typed something that is not saved: what an example gives to its simulation is kept as a draft, too. */
export const hasDrafts = () => drafts().some(isTyped)
export const forgetDrafts = () => drafts().forEach(key => sessionStorage.removeItem(key))

/** Whom an access token names. */
const personIn = (jwt: string): string => {
  try {
    return JSON.parse(atob(jwt.split('.')[1]!.replaceAll('-', '+').replaceAll('_', '/'))).sub
  } catch {
    return ''
  }
}

async function keep(signed: SignedIn): Promise<void> {
  const whose = personIn(signed.accessToken)
  const isOther = (person || sessionStorage.getItem(PERSON) || whose) !== whose
  if (isOther) forgetDrafts()
  sessionStorage.setItem(PERSON, whose)
  if (workspace && (isOther || workspace !== signed.workspace.id)) {
    location.assign(at('/console/')) // another tab went to another workspace, or somebody else signed in: nothing here is of that one
    return new Promise(() => {}) // what waits for the session is not done by somebody else, or elsewhere
  }
  person = whose
  token = signed.accessToken
  workspace = signed.workspace.id
  localStorage.setItem(LAST, workspace)
  if (!signingIn) return
  signedIn()
  signingIn = null
  showSignIn(false)
}

addEventListener('focus', () => {
  if (signingIn) void resume().catch(() => null)
}) // whoever comes back may have signed in in another tab

async function post(path: string, body: object | null, bearer = ''): Promise<Response> {
  const headers: Record<string, string> = body ? { 'Content-Type': 'application/json' } : {}
  if (bearer) headers.Authorization = `Bearer ${bearer}`
  try {
    return await fetch(at(path), {
      method: 'POST',
      headers,
      body: body && JSON.stringify({ ...body, session: 'cookie' }),
      signal: AbortSignal.timeout(LONGEST_MS),
    })
  } catch {
    throw unreachable()
  }
}

/** Signs in by any of the ways in: a password, a registration, a link. */
export async function begin(path: string, body: object): Promise<void> {
  const response = await post(path, body)
  if (!response.ok) throw await refusal(response)
  await keep(await response.json())
}

/** Signs in to the workspace that is open, else to where this browser was last, else to the oldest. */
export async function signIn(credentials: { email: string; password: string }): Promise<void> {
  const last = workspace ? null : localStorage.getItem(LAST)
  await begin('/auth/token', { ...credentials, workspaceId: workspace || last }).catch((error: Refusal) => {
    if (!last || error.status !== 404) throw error
    return begin('/auth/token', credentials) // it is somebody else's, or gone
  })
}

/** Whether the browser has a session. One tab asks at a time, and the others wait for their turn. */
export async function resume(): Promise<boolean> {
  asking ??= refreshed().finally(() => {
    asking = null
  })
  return asking
}

const INSECURE =
  'The console needs https, except on the machine that Tidings runs on. The operator sets BASE_URL to its https address.'

async function refreshed(): Promise<boolean> {
  if (!navigator.locks) throw new Refusal(0, 'insecure', INSECURE) // as browsers have it for plain http from elsewhere
  return await navigator.locks.request('tidings-session', async () => {
    const response = await post('/auth/refresh', {})
    if (response.status === 200) await keep(await response.json())
    else if (response.status !== 204 && response.status !== 401) throw await refusal(response)
    return response.status === 200
  })
}

export async function switchTo(workspaceId: string): Promise<void> {
  const response = await post('/auth/switch', { workspaceId }, token)
  if (!response.ok) throw await refusal(response)
  workspace = ''
  await keep(await response.json())
  location.assign(at('/console/'))
}

/** Ends the session, unless that is over already: nobody has to sign in to sign out. Whatever workspace another tab went to,
 * it is the session of the cookie that ends. */
export async function leave(): Promise<void> {
  const ended = () => post('/auth/logout', null, token)
  let answer = await ended()
  if (answer.status === 401 && navigator.locks) {
    // without, there is no cookie to renew it by
    workspace = ''
    if (await resume()) answer = await ended()
  }
  if (!answer.ok && answer.status !== 401) throw await refusal(answer)
  token = ''
  forgetDrafts() // whoever comes next may be somebody else
  location.assign(at('/console/'))
}

const signedInAgain = () =>
  (signingIn ??= new Promise(resolve => {
    signedIn = resolve
    showSignIn(true)
  }))

/** Acts of which nobody knows whether they were done, each with its key: pressed again, such an act is done once. */
const unanswered = new Map<string, string>()
const MOST = 20 // acts, and answers
const trim = (kept: Map<string, unknown>) => [...kept.keys()].slice(0, -MOST).forEach(oldest => kept.delete(oldest))

/** Whether it changes nothing, also of what is too long for an address. */
const isReading = ({ method, url }: Request) => method === 'GET' || /\/(check|preview)$/.test(new URL(url).pathname)

const isJson = ({ headers }: Request) =>
  (headers.get('Content-Type') ?? 'application/json').startsWith('application/json')

/** What a request asks for. Files are left out, which the API reads as they come. */
async function actOf(request: Request): Promise<string> {
  if (request.method === 'DELETE') return `DELETE ${request.url}`
  return request.method === 'POST' && !isReading(request) && isJson(request)
    ? `${request.url}\n${await request.clone().text()}`
    : ''
}

function lost(act: string, key: string) {
  if (!act) return
  unanswered.set(act, key)
  trim(unanswered)
}

/** What was read last at an address, in memory alone: whoever looks again asks only whether it has changed. */
const seen = new Map<string, { tag: string; text: string }>()
const LONGEST_SEEN = 500_000 // characters

async function remembered(
  url: string,
  response: Response,
  before: { tag: string; text: string } | undefined,
): Promise<Response> {
  if (response.status === 304 && before)
    return new Response(before.text, { headers: { 'Content-Type': 'application/json', ETag: before.tag } })
  const tag = response.headers.get('ETag')
  if (response.status !== 200 || !tag || response.headers.get('Content-Type') !== 'application/json') return response
  const text = await response.text()
  seen.delete(url)
  if (text.length <= LONGEST_SEEN) seen.set(url, { tag, text })
  trim(seen)
  return new Response(text, { headers: response.headers })
}

const LONGEST_HELD_MS = 10_000 // that a reading waits in all before its refusal is shown, which says how long it would be

/** Asks the API. When the session is over, waits until somebody has signed in again, then repeats; so does what is read too often, once it may be read again. */
export async function ask(request: Request): Promise<Response> {
  const act = await actOf(request)
  let patience = isReading(request) ? LONGEST_HELD_MS : 0
  const key = unanswered.get(act) ?? crypto.randomUUID()
  for (;;) {
    const copy = request.clone()
    const used = token
    copy.headers.set('Authorization', `Bearer ${used}`)
    if (act && request.method === 'POST') copy.headers.set('Idempotency-Key', key)
    const before = request.method === 'GET' ? seen.get(request.url) : undefined
    if (before) copy.headers.set('If-None-Match', before.tag)
    let response: Response,
      answer = ''
    const late = new AbortController()
    const timer = isJson(request) && !request.url.endsWith(SLOW) ? setTimeout(() => late.abort(), LONGEST_MS) : 0
    try {
      response = await fetch(copy, { signal: late.signal })
      if (act) answer = await response.clone().text()
      if (request.method === 'GET') response = await remembered(request.url, response, before)
    } catch {
      lost(act, key)
      throw unreachable()
    } finally {
      clearTimeout(timer)
    }
    if (response.status === 404 && request.method === 'DELETE' && unanswered.has(act))
      response = new Response(null, { status: 204 }) // the try whose answer was lost did it
    // An error of the service, or of what stands before it, leaves open what was done; and so does a first try that is still running.
    if (response.status >= 500 || (response.status === 409 && answer.includes('"idempotency_in_progress"')))
      lost(act, key)
    else if (![401, 403, 429].includes(response.status)) unanswered.delete(act) // these say nothing of a try before
    if (response.status === 429 && patience > 0) {
      const pause = Math.min((Number(response.headers.get('Retry-After')) || 1) * 1000, patience)
      patience -= pause
      await new Promise(resolve => setTimeout(resolve, pause))
      continue
    }
    if (response.status !== 401) return response
    if (used === token && !(await resume())) {
      token = ''
      await signedInAgain()
    }
  }
}
