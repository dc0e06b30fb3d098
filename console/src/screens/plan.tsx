// The plan: what it allows, what is used of it, and how to go to another.
import { api, got, type Schemas } from '../api'
import { useAct, useLoaded, type Loaded } from '../data'
import { useCan } from '../me'
import { Button, Confirm, Facts, Refused, Rows, Section, Shown, When } from '../ui'

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
  const choice = (each: Current['available'][number]) => {
    const { plan } = each,
      rank = of.available.indexOf(each)
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
      <Rows
        caption="Plans"
        of={of.available}
        id={each => each.plan}
        columns={[
          ['Plan', each => each.plan],
          [
            'Price',
            each => (each.price / 100).toLocaleString(undefined, { style: 'currency', currency: each.currency }),
          ],
          ['Contacts', each => limit(each.limits.contacts)],
          ['Messages per month', each => limit(each.limits.messagesPerMonth)],
          ['Actions', choice],
        ]}
      />
    </Section>
  )
}
