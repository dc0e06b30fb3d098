// A flow with all its digits, and what is drawn of it until it is saved: kept in the tab.
import { exactly, type Schemas } from '../api'
import type { Kind } from '../names'
import { go } from '../router'
import { draftKey } from '../session'
import { docOf, type Doc } from './model'

export type Definition = Schemas['Workflow'] | Schemas['Automation']
export interface Stored { value: Definition; tag: string }
export interface Kept { doc: Doc; tag: string; base: Doc }

export const readFlow = (of: Kind, id: string) => exactly<Definition>(`/${of}/${encodeURIComponent(id)}`)
export const readVersion = (of: Kind, id: string, version: number) => exactly<Definition>(`/${of}/${encodeURIComponent(id)}/versions/${version}`)
export const changeFlow = (of: Kind, id: string, tag: string, body: object) =>
  exactly<Definition>(`/${of}/${encodeURIComponent(id)}`, { method: 'PATCH', headers: { 'Content-Type': 'application/json', 'If-Match': tag }, body: JSON.stringify(body) })

const SECRET = /auth(?!or)|authori[sz]|cookie|credential|pass|pwd|secret|session|sig|token|key/i

/** As it may be kept in the tab: without credentials that are not stored yet. */
export const veiled = (kept: Kept) => JSON.stringify(kept, (name, value) => (name !== 'headers' || typeof value !== 'object' || value === null ? value
  : Object.fromEntries(Object.entries(value).map(([header, text]) => [header, SECRET.test(header) && text !== '••••' ? '' : text]))))

/** Leaves a version for the editor as a change that is not saved, and opens it. */
export async function reopen(of: Kind, id: string, version: number): Promise<void> {
  const [{ value, tag }, old] = await Promise.all([readFlow(of, id), readVersion(of, id, version)])
  const base = docOf(value)
  leave(of, id, { doc: { ...docOf(old.value), name: base.name, casesGate: base.casesGate }, tag, base })
}

/** The same with another trigger. */
export async function propose(of: Kind, id: string, trigger: object): Promise<void> {
  const { value, tag } = await readFlow(of, id)
  const base = docOf(value)
  leave(of, id, { doc: { ...base, trigger: { ...base.trigger, ...trigger } }, tag, base })
}

function leave(of: Kind, id: string, kept: Kept) {
  sessionStorage.setItem(draftKey(`flow.${id}`), veiled(kept))
  go(`/flows/${of}/${id}/edit`)
}
