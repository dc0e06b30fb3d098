// Who is signed in, and what they may.
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { Schemas } from './api'

export type Known = Schemas['Me'] & { reload: () => Promise<void> }
export const MeContext = createContext<Known>(null as unknown as Known)
export const useMe = () => useContext(MeContext)
export const can = (me: Schemas['Me'], permission: string) => me.permissions.includes(permission)
/** Whether the one who is signed in may. */
export const useCan = () => {
  const me = useMe()
  return (permission: string) => can(me, permission)
}
