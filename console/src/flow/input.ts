// What a simulation is given.
import { pretty } from '../exact'
import type { Json } from './model'

/** The input of an example or a case, as it stands in the form of a simulation. */
export const inputOf = ({ trigger, startAt, ...more }: { trigger?: unknown; startAt?: string | null } & Json) => ({
  trigger: pretty(trigger ?? {}),
  contact: '',
  startAt: startAt ?? '',
  more: Object.keys(more).length ? pretty(more) : '',
})
