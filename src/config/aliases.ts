import { z } from 'zod';

/** Paths of this server's own interfaces, which no alias takes over. */
const ownPaths = ['/v1', '/v2', '/v3', '/console', '/token', '/livez', '/readyz', '/metrics', '/as-of'];

const path = z
  .string()
  .max(200)
  .regex(/^(?:\/[A-Za-z0-9_.~-]+)+\/?$/, 'expected a path such as /repository/nuget-hosted/index.json')
  .refine((text) => !/\/\.{1,2}(?:\/|$)/.test(text), 'a path here has no . or .. in it');
const host = z
  .string()
  .max(260)
  .regex(
    /^(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d{1,5})?$/,
    'expected a host in lower case, such as old.example or old.example:5000',
  );
/** The beginning of names of images. */
const imagePrefix = z
  .string()
  .max(200)
  .regex(
    /^[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:\/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*$/,
    'expected the beginning of image names, such as team',
  );

const alias = z
  .strictObject({
    path: path.optional(),
    host: host.optional(),
    to: z.enum(['feed', 'registry']),
    account: z.string().min(1).max(100).optional(),
    prefix: imagePrefix.optional(),
  })
  .superRefine(({ path: at, host: of, to, prefix }, context) => {
    const refuse = (key: string, message: string) => context.addIssue({ code: 'custom', path: [key], message });
    if (at === undefined && of === undefined) refuse('path', 'an alias needs a path, a host or both');
    if (prefix !== undefined && to === 'feed') refuse('prefix', 'is only for "to: registry": package IDs have none');
    if (to === 'feed' && of === undefined && ownPaths.some((own) => at === own || at?.startsWith(`${own}/`)))
      refuse('path', 'is one of this server already, so it needs no alias');
  });

/** The setting `aliases`. */
export const aliases = z.array(alias).max(1000);
