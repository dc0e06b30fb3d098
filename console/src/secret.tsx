// A secret that is shown once.
import { useEffect, useRef } from 'preact/hooks'
import { Button, Copy } from './ui'

/** It comes into sight: what made it stands further down. */
export function Secret({ name, value, forget }: { name: string; value: string; forget: () => void }) {
  const note = useRef<HTMLDivElement>(null)
  useEffect(() => note.current?.scrollIntoView({ block: 'center' }), [value])
  return (
    <div class="note" role="status" ref={note}>
      <p>{name}. It is shown only once: store it safely.</p>
      <p class="copyable">
        <code>{value}</code> <Copy text={value} />{' '}
        <Button small onClick={forget}>
          Done
        </Button>
      </p>
    </div>
  )
}
