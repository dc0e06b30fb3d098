// The examples of docs/examples, as they are tried there.
import type { Schemas } from '../api'
import { parse } from '../exact'
import abSubjectTest from '../../../docs/examples/ab-subject-test.json'
import abandonedCart from '../../../docs/examples/abandoned-cart.json'
import bookingReminder from '../../../docs/examples/booking-reminder.json'
import dunning from '../../../docs/examples/dunning.json'
import leadRouting from '../../../docs/examples/lead-routing.json'
import nps from '../../../docs/examples/nps.json'
import orderUpdates from '../../../docs/examples/order-updates.json'
import rePermission from '../../../docs/examples/re-permission.json'
import surveyFollowUp from '../../../docs/examples/survey-follow-up.json'
import trialExpiry from '../../../docs/examples/trial-expiry.json'
import welcomeSeries from '../../../docs/examples/welcome-series.json'
import winBack from '../../../docs/examples/win-back.json'

type Json = Record<string, unknown>
type Definition =
  | (Omit<Schemas['WritableWorkflow'], 'name'> & { graph?: undefined })
  | (Omit<Schemas['WritableAutomation'], 'name'> & { graph: object })
export interface Example {
  name: string
  about: string
  definition: Definition
  templates?: Record<string, { name?: string } & Json>
  input: { trigger?: Json; startAt?: string } & Json
}

// The build has them as text, so that numbers keep their digits.
const of = (text: unknown) => parse(text as string) as Example
export const EXAMPLES: readonly Example[] = [
  of(welcomeSeries),
  of(abandonedCart),
  of(dunning),
  of(bookingReminder),
  of(winBack),
  of(surveyFollowUp),
  of(leadRouting),
  of(trialExpiry),
  of(nps),
  of(orderUpdates),
  of(rePermission),
  of(abSubjectTest),
]
