// The API, typed by its own OpenAPI document: a screen that drifts from it does not compile.
import createClient from 'openapi-fetch'
import { parse } from './exact'
import type { components, paths } from './schema'
import { Refusal, ask, at, refusal, refused } from './session'

export type Schemas = components['schemas']
export const api = createClient<paths>({ baseUrl: at('/').replace(/\/$/, '') || location.origin, fetch: ask })

export const byId = (id: string) => ({ params: { path: { id } } })

export interface Answered<T> {
  data?: T
  error?: unknown
  response: Response
}

/** What was answered. Throws a Refusal. */
export async function got<T>(asked: Promise<Answered<T>>): Promise<T> {
  const { data, error, response } = await asked
  if (response.ok) return data as T
  throw refused(response.status, error)
}

/** Likewise, with its entity tag, which the next change has to match. */
export async function tagged<T>(asked: Promise<Answered<T>>): Promise<{ value: T; tag: string }> {
  const answer = await asked
  return { value: await got(Promise.resolve(answer)), tag: answer.response.headers.get('ETag') ?? '' }
}

/** A change under If-Match. One that is refused although it stands there already was our own, whose answer was lost. */
export async function settled(change: Promise<unknown>, stands: () => Promise<boolean>): Promise<void> {
  try {
    await change
  } catch (error) {
    if (!(error instanceof Refusal) || error.status !== 412) throw error
    if (await stands()) return
    throw new Refusal(
      412,
      error.code,
      'Someone else changed this. What you typed is still here: check their changes, then save again.',
    )
  }
}

/** What is sent as it stands, with all its digits. */
export const sent = (method: string, body: object, headers: Record<string, string> = {}): RequestInit => ({
  method,
  headers: { 'Content-Type': 'application/json', ...headers },
  body: JSON.stringify(body),
})

/** Something that the generated client does not carry: a file, or lines of JSON. */
export async function raw(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await ask(new Request(at(path), init))
  if (response.ok) return response
  throw await refusal(response)
}

/** What stands at this path with all its digits, and its entity tag. */
export async function exactly<T>(path: string, init: RequestInit = {}): Promise<{ value: T; tag: string }> {
  const answer = await raw(path, init)
  return { value: parse(await answer.text()) as T, tag: answer.headers.get('ETag') ?? '' }
}

export const download = async (path: string, name: string): Promise<void> => save(await (await raw(path)).blob(), name)

export function save(file: Blob, name: string): void {
  const url = URL.createObjectURL(file)
  Object.assign(document.createElement('a'), { href: url, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
