// Names for ids: of flows and contacts, looked up once per tab.
import { api, got, type Schemas } from './api'
import { useKnown, useLoaded } from './data'
import { Refusal } from './session'
import { Link } from './ui'

export type Kind = 'workflows' | 'automations'
export type FlowName = { id: string; kind: Kind; name: string; state: string; version: number; triggerSource: string; updatedAt: string }

const NEWEST = { params: { query: { limit: 200 } } }

/** All flows of the workspace, of both shapes, the newest first. */
export async function flows(): Promise<FlowName[]> {
  const [steps, graphs] = await Promise.all([got(api.GET('/workflows', NEWEST)), got(api.GET('/automations', NEWEST))])
  return [...steps.data.map(each => ({ ...each, kind: 'workflows' as const })), ...graphs.data.map(each => ({ ...each, kind: 'automations' as const }))]
    .sort((a, b) => (a.updatedAt < b.updatedAt ? 1 : -1))
}

export const useFlows = () => useLoaded(flows, [])

// What a form offers to choose from.
export const templates = async () => (await got(api.GET('/templates', NEWEST))).data
export const segments = async () => (await got(api.GET('/segments', NEWEST))).data
export const broadcasts = async () => (await got(api.GET('/broadcasts', NEWEST))).data
export const topics = async () => (await got(api.GET('/topics', NEWEST))).data

export function FlowLink({ run, all }: { run: { workflowId?: string | null; automationId?: string | null }; all: FlowName[] | null }) {
  const id = run.workflowId ?? run.automationId ?? ''
  return <Link to={`/flows/${run.workflowId ? 'workflows' : 'automations'}/${id}`}>{all?.find(each => each.id === id)?.name ?? id}</Link>
}

export const called = (contact: Pick<Schemas['Contact'], 'id' | 'firstName' | 'lastName' | 'email' | 'phone'>) =>
  [contact.firstName, contact.lastName].filter(Boolean).join(' ') || contact.email || contact.phone || contact.id

/** The contact that somebody means: by ID, or by the beginning of an address or a name; null for nobody. */
export async function meant(text: string): Promise<string | null> {
  const wanted = text.trim()
  if (!wanted || wanted.startsWith('con_')) return wanted || null
  const { data: [one, another] } = await got(api.GET('/contacts', { params: { query: { q: wanted, limit: 2 } } }))
  if (one && !another) return one.id
  const message = one ? 'Several contacts begin like that: type more of it, or the ID.' : 'No contact begins like that.'
  throw new Refusal(422, 'invalid', message, [{ pointer: '/contactId', message }])
}

const contacts = new Map<string, string>()

export const useContactNames = (ids: readonly (string | null)[]) =>
  useKnown(contacts, ids.filter(id => id !== null), async id => called(await got(api.GET('/contacts/{id}', { params: { path: { id } } }))))

export function ContactLink({ id, names }: { id: string | null; names: Map<string, string> }) {
  return id ? <Link to={`/contacts/${id}`}>{names.get(id) ?? id}</Link> : <span class="soft">erased</span>
}
