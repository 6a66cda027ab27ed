import { z } from 'zod';
import type { Accounts } from '../../accounts/accounts.ts';
import { allowedAs } from '../../accounts/allow.ts';
import type { Names } from '../../accounts/names.ts';
import type { Principal } from '../../accounts/principal.ts';
import { DomainError } from '../../runtime/errors.ts';
import { itemOf, isKnownPattern } from '../../events/event.ts';
import type { EventFilter } from '../../events/event-list.ts';
import type { Events } from '../../events/events.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { cursorOf, pageQuery, readCursor } from '../framework/paging.ts';
import { eventList, givenTime } from '../framework/schemas.ts';

const time = (description: string) => givenTime.optional().meta({ description });
const text = (description: string) => z.string('expected one value').min(1).max(255).optional().meta({ description });

const auditQuery = pageQuery.extend({
  type: z
    .string('expected one type')
    .refine(isKnownPattern, 'expected a type such as package.published, or package.* for all of a group')
    .optional()
    .meta({ description: 'A type, or a group of types such as `package.*`' }),
  actor: text('The ID or the name of the actor, such as of a token'),
  account: text('Only events of this account. Those of other accounts need the scope operate'),
  subject: text('The name of a package, an image, a token, an upstream or an account, in any letter case'),
  since: time('Only events at this time or later'),
  until: time('Only events before this time'),
  after: z
    .string('expected one ID')
    .regex(/^\d{1,15}$/, 'expected the ID of an event, or 0')
    .transform(Number)
    .optional()
    .meta({
      type: 'string',
      description:
        'Only events after the one with this ID, the earliest first. To follow, send next_cursor while there is one, then the ID of the last event, again and again; 0 begins with the first event that is kept',
    }),
});
type AuditQuery = z.output<typeof auditQuery>;

export interface AuditParts {
  events: Events;
  accounts: Accounts;
}

/** The place of an event in a list: its time and its position. */
const eventKey = z.tuple([z.int(), z.int()]);

/** Lists that an account reads at the same time, those that wait for them, and how long; milliseconds. */
const maxLists = 2;
const maxWaiting = 20;
const patience = 10_000;

/** `/audit`: the record of events. */
export function auditOperations(parts: AuditParts): Operation[] {
  const turns = new Semaphore({ max: maxLists, maxWaiting });
  return [
    operation({
      method: 'get',
      path: '/audit',
      id: 'listEvents',
      summary:
        'List who did what, the latest first. Needs the scope admin, which shows the events of the account, or operate, which shows all events. A page can have fewer events than its limit, also none, although there is a next one',
      action: 'any',
      query: auditQuery,
      status: 200,
      answer: eventList,
      run: async ({ principal, query }) => {
        const { events } = parts;
        const filter = await filterOf(parts, principal, query);
        const { after, limit, cursor } = query;
        const list = { name: after === undefined ? 'audit' : 'audit/after', key: eventKey };
        const from = readCursor(cursor, list);
        const end = await turnOf(turns, principal);
        try {
          // So that a client sees its own changes. If the database cannot be written, the visible events are still shown.
          await events.dispatch().catch(() => undefined);
          const page =
            after === undefined
              ? await events.listBefore(filter, limit, from)
              : await events.listAfter(filter, limit, from?.[1] ?? after);
          return { items: page.events.map(itemOf), next_cursor: page.next ? cursorOf(list.name, page.next) : null };
        } finally {
          end();
        }
      },
    }),
  ];
}

/** A filter can make a list read very many events, so an account reads few lists at a time. Throws `TooManyRequests`. */
async function turnOf(turns: Semaphore, { accountId }: Principal): Promise<() => void> {
  const end = await turns.take(String(accountId), { patience });
  if (end) return end;
  throw new DomainError(
    'TooManyRequests',
    'This account reads other lists of events. Try again when they have ended.',
    {
      retryAfter: 5,
    },
  );
}

/**
 * The account whose records the principal asks for and may see, undefined for all accounts, and the names that limit it there. With
 * `admin` that is its own, with `operate` any. Throws `ScopeMissing`, `Invalid` for an account that does not exist, and with `allNames`
 * `NameDenied` for a principal with limits.
 */
export async function audienceOf(
  accounts: Accounts,
  principal: Principal,
  account: string | undefined,
  allNames?: string,
): Promise<{ accountId: number | undefined; names: Names | undefined }> {
  const { accountId, accountName, scopes } = principal;
  const isOther = account !== undefined && account !== accountName;
  const seesAll = isOther || (scopes.has('operate') && (account === undefined || !scopes.has('admin')));
  const { names } = allowedAs(principal, seesAll ? 'operate' : 'admin', allNames);
  const named = isOther ? await accounts.named(account) : undefined;
  if (isOther && !named) {
    throw new DomainError('Invalid', 'account: there is no account with this name', {
      detail: { parameter: 'account' },
    });
  }
  return { accountId: named?.id ?? (seesAll && account === undefined ? undefined : accountId), names };
}

/** What the principal asks for and may see. Throws as `audienceOf`. */
async function filterOf({ accounts }: AuditParts, principal: Principal, query: AuditQuery): Promise<EventFilter> {
  const { account, type, actor, subject, since, until } = query;
  return {
    ...(await audienceOf(accounts, principal, account)),
    type,
    actor,
    subject,
    ...(since !== undefined && { since: Date.parse(since) }),
    ...(until !== undefined && { until: Date.parse(until) }),
  };
}
