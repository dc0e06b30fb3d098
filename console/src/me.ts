// Who is signed in, and what they may.
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { api, got, type Schemas } from './api'
import { useLoaded } from './data'

export type Known = Schemas['Me'] & { reload: () => Promise<void> }
export const MeContext = createContext<Known>(null as unknown as Known)
export const useMe = () => useContext(MeContext)
export const can = (me: Schemas['Me'], permission: string) => me.permissions.includes(permission)
/** Whether the one who is signed in may. */
export const useCan = () => {
  const me = useMe()
  return (permission: string) => can(me, permission)
}

/** Whether the audit trail can be read: by this role, and on the plan of this workspace. */
export function useAudit(): boolean {
  const may = useCan()('audit_logs:read')
  const plan = useLoaded(async () => (may ? got(api.GET('/billing/plan')) : null), [may])
  const of = plan.value
  return of?.available.find(each => each.plan === of.plan)?.features.includes('audit_logs') ?? false
}
