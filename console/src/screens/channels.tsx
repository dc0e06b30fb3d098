// Through whom a workspace sends on each channel.
import { useState } from 'preact/hooks'
import { api, got, type Schemas } from '../api'
import { useAct, useDraft, useLoaded } from '../data'
import { useCan } from '../me'
import { CHANNELS } from '../words'
import { Button, Confirm, Field, Form, Refused, Section, Shown, Status, Press } from '../ui'

export function Channels() {
  const ways = useLoaded(() => got(api.GET('/settings/channels')), [])
  return (
    <Shown of={ways}>
      {({ data }) => (
        <>
          {data.map(way => (
            <Channel key={way.channel} way={way} reload={ways.reload} />
          ))}
        </>
      )}
    </Shown>
  )
}

function Channel({ way, reload }: { way: Schemas['Way']; reload: () => Promise<void> }) {
  const may = useCan()('settings:write')
  const [found, setFound] = useState<Schemas['Verified'] | null>(null)
  const [changing, setChanging] = useState(false)
  const act = useAct()
  const path = { params: { path: { channel: way.channel } } }
  const renew = async () => {
    setFound(null)
    await reload()
  } // what was found was about the settings of before
  return (
    <Section
      title={CHANNELS[way.channel]}
      actions={
        may && (
          <span class="actions">
            {way.ownSettings && (
              <Press
                act={act}
                work={async () => {
                  setFound(null)
                  setFound(await got(api.POST('/settings/channels/{channel}/verify', path)))
                }}
              >
                Verify
              </Press>
            )}
            <Button aria-expanded={changing} onClick={() => setChanging(!changing)}>
              Use your own provider
            </Button>
            {way.ownSettings && (
              <Confirm
                label="Remove"
                danger
                title="Remove these settings?"
                act={() => got(api.DELETE('/settings/channels/{channel}', path)).then(renew)}
              >
                <p>Messages then go through the operator’s provider, if there is one.</p>
              </Confirm>
            )}
          </span>
        )
      }
    >
      <p>
        {way.provider ? (
          <>
            Sends through <b>{way.provider}</b>
            {way.ownSettings ? ', with your own settings' : ''}.
            {!way.reports && way.provider !== 'sandbox' && ' It does not report deliveries.'}
          </>
        ) : (
          'Not set up: messages on this channel fail.'
        )}
      </p>
      <Refused problem={act.problem} />
      {found && (
        <div role="status">
          {found.ok ? (
            <p>
              <Status value="ACTIVE" /> Messages can be sent.
            </p>
          ) : (
            <p>
              <Status value="FAILED" /> Messages cannot be sent.
            </p>
          )}
          <ul>
            {found.findings.map(one => (
              <li key={one.code}>{one.message}</li>
            ))}
          </ul>
        </div>
      )}
      {changing && (
        <ChannelForm
          way={way}
          done={async () => {
            setChanging(false)
            await renew()
          }}
        />
      )}
    </Section>
  )
}

function ChannelForm({ way, done }: { way: Schemas['Way']; done: () => Promise<void> }) {
  const [draft, change, forget] = useDraft<Record<string, string>>(`channel.${way.channel}`, {
    provider: way.providers[0]!.name,
  })
  const [secrets, setSecrets] = useState<Record<string, string>>({}) // which are kept nowhere
  const { provider, ...values } = { ...draft, ...secrets }
  const chosen = way.providers.find(each => each.name === provider)!
  return (
    <Form
      label="Save"
      submit={async () => {
        const given = Object.fromEntries(
          chosen.fields.filter(({ name }) => values[name]).map(({ name }) => [name, values[name]]),
        )
        await got(
          api.PUT('/settings/channels/{channel}', {
            params: { path: { channel: way.channel } },
            body: { ...given, provider: chosen.name },
          }),
        )
        forget()
        await done()
      }}
    >
      <Field
        label="Provider"
        value={provider!}
        set={provider => change({ provider })}
        options={way.providers.map(({ name }) => [name, name] as const)}
        pointer="/provider"
      />
      {chosen.fields.map(({ name, label, secret }) => (
        <Field
          key={name}
          label={label}
          {...(secret ? { type: 'password', autocomplete: 'off' } : {})}
          value={values[name] ?? ''}
          set={value => (secret ? setSecrets({ ...secrets, [name]: value }) : change({ [name]: value }))}
          pointer={`/${name}`}
        />
      ))}
    </Form>
  )
}
