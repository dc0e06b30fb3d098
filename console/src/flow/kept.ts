// A flow with all its digits, and what is drawn of it until it is saved: kept in the tab.
import { exactly, sent, type Schemas } from '../api'
import type { Kind } from '../names'
import { go } from '../router'
import { isObject } from '../exact'
import { draftKey } from '../session'
import { docOf, type Doc, type Json } from './model'

export type Definition = Schemas['Workflow'] | Schemas['Automation']
export interface Stored {
  value: Definition
  tag: string
}
/** `isVeiled`: credentials were typed and are not in it. */
export interface Kept {
  doc: Doc
  tag: string
  base: Doc
  isVeiled?: boolean
}

export const readFlow = (of: Kind, id: string) => exactly<Definition>(`/${of}/${encodeURIComponent(id)}`)
export const readVersion = (of: Kind, id: string, version: number) =>
  exactly<Definition>(`/${of}/${encodeURIComponent(id)}/versions/${version}`)
export const changeFlow = (of: Kind, id: string, tag: string, body: object) =>
  exactly<Definition>(`/${of}/${encodeURIComponent(id)}`, sent('PATCH', body, { 'If-Match': tag }))

export const MASK = '••••' // of the service: whoever saves it keeps what is stored, and is refused where nothing is
const HUMP = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g
const SECRET =
  /auth(?!or)|authori[sz]|cookie|credential|passphrase|passw|pwd|secret(?!ar)|session|signature|token|webhook[-_]?url|(?<![a-z])keys?(?![a-z])|(?:api|access|auth|pass|private|secret)key|(?<![a-z])sign?(?![a-z])/

const veil = (members: Json): Json =>
  !isObject(members.headers)
    ? members.headers
      ? { ...members, headers: MASK }
      : members
    : {
        ...members,
        headers: Object.fromEntries(
          Object.entries(members.headers).map(([name, text]) => [
            name,
            text && SECRET.test(name.replace(HUMP, '-').toLowerCase()) ? MASK : text,
          ]),
        ),
      }

/** As it may be kept in the tab: in the place of a credential that was typed stands the mask. */
export const veiled = (kept: Kept | Doc): string =>
  JSON.stringify(kept, (_, value) =>
    !isObject(value) || value.type !== 'http_request'
      ? value
      : isObject(value.data)
        ? { ...value, data: veil(value.data) }
        : veil(value),
  )

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
