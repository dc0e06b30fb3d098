// The plan: what it allows, what is used of it, and how to go to another.
import { api, got, type Schemas } from '../api'
import { useAct, useLoaded, type Loaded } from '../data'
import { useCan } from '../me'
import { Button, Confirm, Facts, Refused, Section, Shown, When } from '../ui'

type Current = Schemas['CurrentPlan']
type Name = Current['plan']

const limit = (value: number | null) => (value === null ? 'no limit' : value.toLocaleString())

export function Plan() {
  const plan = useLoaded(
    () => got(api.GET('/billing/plan')),
    [],
    () => 5000,
  ) // what was paid for comes by itself
  return (
    <Shown of={plan}>
      {value => (
        <>
          <Facts
            of={[
              ['Plan', <b>{value.plan}</b>],
              ['Contacts', `${value.usage.contacts.toLocaleString()} of ${limit(value.limits.contacts)}`],
              [
                'Messages this month',
                `${value.usage.messagesPerMonth.toLocaleString()} of ${limit(value.limits.messagesPerMonth)}`,
              ],
              ['Members', `${value.usage.members} of ${limit(value.limits.members)}`],
              ...(value.sending.dailyLimit === null
                ? []
                : ([
                    ['Sent today', `${value.sending.sentToday.toLocaleString()} of ${limit(value.sending.dailyLimit)}`],
                  ] as const)),
              ['Renews', <When at={value.renewsAt} none="–" />],
            ]}
          />
          <Others of={value} set={plan.set} />
        </>
      )}
    </Shown>
  )
}

function Others({ of, set }: { of: Current; set: Loaded<Current>['set'] }) {
  const may = useCan()('billing:write')
  const act = useAct()
  const own = of.available.findIndex(each => each.plan === of.plan)
  const isLeaving = of.nextPlan !== null && of.nextPlan !== of.plan
  const buy = (wanted: Name) =>
    act.run(async () => {
      const back = location.href
      const { checkoutUrl } = await got(
        api.POST('/billing/checkout', {
          body: { plan: wanted as Schemas['NewCheckout']['plan'], successUrl: back, cancelUrl: back },
        }),
      )
      location.assign(checkoutUrl)
    })
  const change = async (plan: Name) => set(await got(api.PATCH('/billing/plan', { body: { plan } })))
  const choice = ({ plan }: Current['available'][number], rank: number) => {
    if (plan === of.nextPlan && isLeaving)
      return (
        <>
          from <When at={of.renewsAt} none="the end of the month" />
        </>
      )
    if (rank === own)
      return (
        <>
          current{' '}
          {may && isLeaving && (
            <Confirm label={`Keep ${plan}`} title={`Keep ${plan}?`} act={() => change(plan)}>
              <p>It continues and is billed as before.</p>
            </Confirm>
          )}
        </>
      )
    if (!may) return null
    if (rank > own)
      return (
        <Button disabled={act.busy} onClick={() => void buy(plan)}>
          Choose {plan}
        </Button>
      )
    return (
      <Confirm label={`Downgrade to ${plan}`} title={`Downgrade to ${plan}?`} act={() => change(plan)}>
        <p>
          {of.plan} stays until the end of the paid period; then {plan} and its limits apply. Nothing that is there is
          lost.
        </p>
      </Confirm>
    )
  }
  return (
    <Section title="Plans">
      <Refused problem={act.problem} />
      <table>
        <thead>
          <tr>
            <th scope="col">Plan</th>
            <th scope="col">Price</th>
            <th scope="col">Contacts</th>
            <th scope="col">Messages per month</th>
            <th scope="col">
              <span class="unseen">Choose</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {of.available.map((each, rank) => (
            <tr key={each.plan}>
              <td data-name="Plan">{each.plan}</td>
              <td data-name="Price">
                {(each.price / 100).toLocaleString(undefined, { style: 'currency', currency: each.currency })}
              </td>
              <td data-name="Contacts">{limit(each.limits.contacts)}</td>
              <td data-name="Messages per month">{limit(each.limits.messagesPerMonth)}</td>
              <td>{choice(each, rank)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  )
}
