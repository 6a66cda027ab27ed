import { kindOfWord } from '../config/protocols.ts';
import type { NewEvent } from '../events/event.ts';
import type { MirroredName } from '../mirror/policy/admission.ts';
import { strictest, type Decision, type LayerDecision } from './decide.ts';
import { kindOf } from './gate.ts';

/** The refusals of content since the start of this process. */
export class PolicyRefusals {
  readonly #note: (event: NewEvent) => void;
  readonly #counts = new Map<string, { kind: string; verdict: string; mode: string; count: number }>();

  /** `note` takes an event that clients can repeat. */
  constructor(note: (event: NewEvent) => void) {
    this.#note = note;
    for (const kind of ['package', 'image', 'blob'])
      for (const verdict of ['hold', 'deny'])
        for (const isEnforced of [true, false]) this.#countOf(kind, verdict, isEnforced);
  }

  /** By kind, verdict and mode. */
  get counts() {
    return this.#counts.values();
  }

  count(kind: string, verdict: string, isEnforced: boolean): void {
    this.#countOf(kind, verdict, isEnforced).count += 1;
  }

  /** Counts a request once in each mode, and notes the event if it is refused. `references` begin with the one that was requested. */
  request(name: MirroredName, [reference]: readonly string[], refusals: readonly LayerDecision[]): void {
    for (const isEnforced of [true, false]) {
      const decision = strictest(refusals.filter(({ layer }) => layer.isEnforced === isEnforced));
      if (decision.verdict === 'allow') continue;
      this.count(name.kind, decision.verdict, isEnforced);
      if (isEnforced) this.#note(refusedEvent(name, reference, decision));
    }
  }

  #countOf(kind: string, verdict: string, isEnforced: boolean) {
    const mode = isEnforced ? 'enforce' : 'audit';
    const key = `${kind}/${verdict}/${mode}`;
    const counted = this.#counts.get(key) ?? { kind, verdict, mode, count: 0 };
    this.#counts.set(key, counted);
    return counted;
  }
}

function refusedEvent(
  name: MirroredName,
  reference: string | undefined,
  { verdict, rule, list, layer, reason }: Decision,
): NewEvent {
  const subject = { kind: kindOfWord(kindOf(name))!, name: name.shown[0]!, reference };
  const details = { verdict, layer: layer?.scope, rule, list, reason, upstream: name.upstream.name };
  return { type: 'policy.refused', accountId: name.accountId, subject, details };
}
