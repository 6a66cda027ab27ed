import { protocolWords } from '../config/protocols.ts';
import type { ExposedUser } from './exposure.ts';

/** Somebody who pulled content, as in `/v1/exposed`. */
export function exposedItem({ content, user, count, firstAt, lastAt, pushes }: ExposedUser, account: string | null) {
  const { id: _id, ...job } = user?.job ?? { id: '' };
  return {
    kind: wordOf(content.kind),
    name: content.name,
    reference: content.reference,
    account,
    user: user ? { kind: user.kind, id: user.id, name: user.name, rule_id: user.ruleId, person: user.person } : null,
    job: 'issuer' in job ? job : null,
    count,
    first_at: new Date(firstAt).toISOString(),
    last_at: new Date(lastAt).toISOString(),
    pushed: pushes.map((each) => ({ ...each, kind: wordOf(each.kind), at: new Date(each.at).toISOString() })),
  };
}

function wordOf(kind: string): string {
  return protocolWords.find((each) => each.kind === kind)?.word ?? kind;
}
