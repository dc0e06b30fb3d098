// A mail in a frame in which nothing can run, shown once: by a link if it is a message, by a form if it is stored nowhere.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { api, byId, got } from './api'
import { useLoaded } from './data'
import { at } from './session'
import { Button, Shown } from './ui'

export type Previewed = { messageId: string } | { html: string }
interface Showing {
  url: string
  html?: string
}

async function ask(of: Previewed, remoteImages: boolean): Promise<Showing> {
  if ('messageId' in of)
    return await got(api.POST('/messages/{id}/previews', { ...byId(of.messageId), body: { remoteImages } }))
  const sent = new TextEncoder().encode(of.html.replace(/\r\n?|\n/g, '\r\n')) // as the form will
  const sha256 = [...new Uint8Array(await crypto.subtle.digest('SHA-256', sent))]
    .map(byte => byte.toString(16).padStart(2, '0'))
    .join('')
  return {
    ...(await got(api.POST('/previews', { body: { length: sent.length, sha256, remoteImages } }))),
    html: of.html,
  }
}

export function Preview({ of, width }: { of: Previewed; width?: number }) {
  const [images, setImages] = useState(false)
  const shown = useLoaded(() => ask(of, images), ['messageId' in of ? of.messageId : of.html, images], undefined, 0)
  return (
    <Shown of={shown}>
      {showing => (
        <div class="preview">
          <Frame key={showing.url} {...showing} width={width} />
          <p class="soft">
            {images ? (
              'Remote images are loaded.'
            ) : (
              <>
                Scripts do not run here, and remote images are not loaded.{' '}
                <Button small onClick={() => setImages(true)}>
                  Show remote images
                </Button>
              </>
            )}
          </p>
        </div>
      )}
    </Shown>
  )
}

function Frame({ url, html, width }: Showing & { width: number | undefined }) {
  const name = useId(),
    form = useRef<HTMLFormElement>(null)
  useEffect(() => form.current?.submit(), [])
  return (
    <>
      {html !== undefined && (
        <form ref={form} method="post" enctype="text/plain" action={at(url)} target={name} hidden>
          <input type="hidden" name="html" value={html} />
        </form>
      )}
      <iframe
        name={name}
        src={html === undefined ? at(url) : undefined}
        title="Email as HTML"
        sandbox=""
        referrerpolicy="no-referrer"
        width={width}
      />
    </>
  )
}
