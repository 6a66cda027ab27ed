import { evidenceText, type Decision } from './decide.ts';
import type { HeldReference } from './held.ts';

/** A decision as `/v1` and the commands tell it. */
export function decisionItem({ verdict, layer, rule, list, reason, until, evidence }: Decision) {
  return {
    verdict,
    layer: layer?.scope ?? null,
    rule: rule ?? null,
    list: list ?? null,
    reason: reason ?? null,
    until: until === undefined ? null : new Date(until).toISOString(),
    evidence: evidence.map(evidenceText),
  };
}

/** What is refused, as `/v1/held` and the commands tell it. */
export function heldItem({ decision, isBelowVisible, ...each }: HeldReference) {
  return { ...each, ...decisionItem(decision), below_visible: isBelowVisible };
}
