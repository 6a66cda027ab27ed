import { z } from 'zod';
import { isLoopback } from '../runtime/authority.ts';
import { upstreamKinds } from './protocols.ts';
import { sizeSetting } from './units.ts';
import { isOrigin, upstreamAuth, upstreamUrl } from './upstreams.ts';

const patterns = z.array(z.string().min(1).max(300)).max(1000);

const predecessor = z.strictObject({
  name: z
    .string()
    .max(100)
    .regex(/^[a-z0-9]+(?:[._-][a-z0-9]+)*$/, 'expected a name such as nexus-hosted'),
  kind: z.enum(upstreamKinds),
  url: upstreamUrl,
  account: z.string().min(1).max(100).default('default'),
  auth: upstreamAuth.optional(),
  caFile: z.string().optional(),
  allowPrivateNetwork: z.boolean().default(false),
  include: patterns.default(['*']),
  exclude: patterns.default([]),
  rename: patterns.default([]),
  rate: sizeSetting.pipe(z.number().min(1, 'expected more than 0')).optional(),
  adoptCredentials: z.union([z.boolean(), z.strictObject({ rightsFile: z.string().min(1) })]).default(false),
});

/** The setting `predecessors`. */
export const predecessors = z
  .array(predecessor)
  .max(100)
  .superRefine((list, context) => {
    for (const [index, { name, kind, url, adoptCredentials }] of list.entries()) {
      const refuse = (key: string, message: string) =>
        context.addIssue({ code: 'custom', path: [index, key], message });
      if (list.slice(0, index).some((before) => before.name === name))
        refuse('name', `there are two predecessors named ${name}`);
      if (kind !== upstreamKinds[0] && !isOrigin(url))
        refuse('url', 'a registry’s URL cannot have a path or a query: repositories are below /v2/ of its host');
      if (adoptCredentials !== false && !keepsSecrets(new URL(url)))
        refuse('adoptCredentials', 'passwords of clients are sent to the predecessor, so its URL needs https');
    }
  });

/** Whether what is sent to `url` is encrypted, or stays on this machine. */
function keepsSecrets({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || isLoopback(hostname);
}
