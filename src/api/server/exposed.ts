import { z } from 'zod';
import type { Accounts } from '../../accounts/accounts.ts';
import { maxAsked } from '../../exposure/asked.ts';
import { exposedItem } from '../../exposure/exposed-item.ts';
import type { Exposure, ExposedUser } from '../../exposure/exposure.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { count, givenTime, text, time } from '../framework/schemas.ts';
import { audienceOf } from './audit.ts';

const kind = z.string().meta({ description: 'package or image' });
const reference = z.string().meta({ description: 'The version of a package, the digest of an image' });

export const exposedList = z
  .strictObject({
    items: z.array(
      z
        .strictObject({
          kind,
          name: z.string(),
          reference,
          account: text.meta({ description: 'null for an account that is deleted' }),
          user: z
            .strictObject({
              kind: z.enum(['token', 'job', 'anonymous', 'console']).meta({
                description:
                  'job: one run of a CI. anonymous: all clients without a token. console: all people who downloaded it there',
              }),
              id: z.string().meta({ description: 'Of a token its ID' }),
              name: text.meta({ description: 'Of a token its name, of a job that of the rule that gave its token' }),
              rule_id: text,
              person: text.meta({ description: 'The person whose personal token it is' }),
            })
            .nullable(),
          job: z
            .strictObject({ issuer: z.string(), repository: text, ref: text, run: text, subject: text })
            .nullable()
            .meta({ description: 'What the identity token of the job said' }),
          count: count.meta({ description: 'Pulls' }),
          first_at: time,
          last_at: time,
          pushed: z
            .array(z.strictObject({ kind, name: z.string(), reference, at: time }))
            .meta({ description: 'The latest 10 that the same token or job pushed after its first pull of this' }),
        })
        .meta({ id: 'ExposedUser' }),
    ),
    next_cursor: text,
    contents: count.meta({ description: 'Versions and digests that were pulled and are meant' }),
    is_complete: z.boolean().meta({ description: 'false if more than 2000 versions and digests are meant' }),
  })
  .meta({ id: 'ExposedUsers' });

const exposedQuery = pageQuery.extend({
  what: z.string('expected one question').min(1).max(maxAsked).meta({
    description:
      'The ID of an advisory or of an entry of a list (`GHSA-…`, `CVE-…`, `MAL-…`), `Name@1.2.3`, `Name@[1.0,2.0)`, `Name@*`, `name:tag`, `name@sha256:…` or `sha256:…`',
  }),
  since: givenTime.optional().meta({ description: 'Only pulls on the day of this time (UTC) or later' }),
  account: z
    .string('expected one value')
    .min(1)
    .max(255)
    .optional()
    .meta({ description: 'Only pulls of this account. Those of other accounts need the scope operate' }),
});

interface ExposedParts {
  exposure: Exposure;
  accounts: Accounts;
}

const allNames = 'This token is limited by name patterns, and the answer is about all that tokens and jobs pulled.';

/** `/exposed`: who pulled a version or an image, or what an advisory is about. */
export function exposedOperations({ exposure, accounts }: ExposedParts): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/exposed',
      id: 'listExposed',
      summary:
        'List which tokens and jobs pulled a version, an image or what an advisory is about, when, and what they pushed afterwards. Needs the scope admin, which shows the account, or operate, which shows all accounts. A client that had the content in its own cache pulled nothing',
      action: 'any',
      query: exposedQuery,
      status: 200,
      answer: exposedList,
      run: async ({ principal, query }) => {
        const { accountId } = await audienceOf(accounts, principal, query.account, allNames);
        const found = await exposure.find(query.what, accountId);
        const since = query.since === undefined ? 0 : Date.parse(query.since);
        const { entries, next_cursor } = await readPage<ExposedUser, [string, string]>(query, {
          name: 'exposed',
          key: z.tuple([z.string(), z.string()]),
          keyOf: ({ contentId, userId }) => [contentId, userId],
          read: (limit, after) => exposure.users(found, since, limit, after),
        });
        const items = entries.map(async (each) =>
          exposedItem(each, (await accounts.nameOf(each.content.accountId)) ?? null),
        );
        return {
          items: await Promise.all(items),
          next_cursor,
          contents: found.contents.length,
          is_complete: found.isComplete,
        };
      },
    }),
  ];
}
