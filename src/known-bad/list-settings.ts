import { z } from 'zod';
import { duration } from '../config/units.ts';
import { hasNoUser } from '../config/upstreams.ts';

/** Most lists: each can have very many entries. */
const maxLists = 20;

/** A list of content that is known to be bad, as a policy names it. `file` is a file or a folder of this machine. */
const list = z
  .strictObject({
    name: z.string().regex(/^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/, 'expected a name such as openssf'),
    url: z
      .url({ protocol: /^https?$/, error: 'expected an http or https URL', abort: true })
      .refine(hasNoUser, 'a URL here cannot have a user name or password')
      .optional(),
    /** A file or a folder of this machine. */
    file: z.string().min(1).optional(),
    /** Milliseconds after which it is read again. */
    refresh: duration
      .pipe(
        z
          .number()
          .min(60_000, 'expected 1m or more')
          .max(30 * 86_400_000, 'expected 30d or less'),
      )
      .prefault('6h'),
    /** Patterns for the IDs of records in OSV's format; others do not count. Own entries always count. */
    ids: z.array(z.string().min(1).max(100)).min(1).max(100).default(['MAL-*']),
    /** IDs of records that do not count, of either kind. */
    except: z.array(z.string().min(1).max(100)).max(1000).default([]),
    mode: z.enum(['enforce', 'audit'], 'expected enforce or audit').default('enforce'),
    /** Whether `url` may lead to private and loopback addresses. */
    allowPrivateNetwork: z.boolean().default(false),
  })
  .refine(({ url, file }) => (url === undefined) !== (file === undefined), 'expected either url or file');

/** The lists of a policy. */
export const listSettings = z
  .array(list)
  .max(maxLists, `expected at most ${maxLists} lists`)
  .superRefine((lists, context) => {
    const names = lists.map(({ name }) => name);
    const second = names.findIndex((name, at) => names.indexOf(name) < at);
    if (second < 0) return;
    context.addIssue({ code: 'custom', path: [second, 'name'], message: `there are two lists named ${names[second]}` });
  });

export type ListSettings = z.output<typeof list>;
