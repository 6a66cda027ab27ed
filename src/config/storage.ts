import { z } from 'zod';
import { sizeSetting } from './units.ts';
import { hasNoUser } from './upstreams.ts';

// The settings of an S3 storage.

/** Values of `storage.driver`. */
export const storageDrivers = ['s3', 'filesystem'] as const;

const text = z.string().min(1);
const flag = z.union([z.boolean(), z.stringbool({ truthy: ['true'], falsy: ['false'] })], {
  error: 'expected true or false',
});

/** A part of `storage`. */
export const storage = {
  driver: z
    .enum(storageDrivers, { error: 'expected filesystem or s3' })
    .default('filesystem')
    .describe('Where stored content is: `filesystem` (the data folder) or `s3` (a bucket)'),
  cache: sizeSetting
    .prefault('20GiB')
    .describe(
      'Most bytes of local copies of content in S3, in the data folder; the least recently used are deleted first',
    ),
  s3: z
    .strictObject({
      endpoint: z
        .url({ protocol: /^https?$/, error: 'expected an http or https URL', abort: true })
        .refine(hasNoUser, 'a URL here cannot have a user name or password')
        .optional()
        .describe('URL of the S3 server; by default the one of AWS in the region'),
      region: text.default('us-east-1').describe('Region of the bucket'),
      bucket: text.optional().describe('Bucket of the storage; it must exist'),
      prefix: z
        .string()
        .regex(/^[A-Za-z0-9._/-]{1,200}$/, 'expected up to 200 letters, digits, or characters of ._/-')
        .optional()
        .describe('Prefix of all keys, such as `entrepot`; none by default'),
      forcePathStyle: flag
        .default(false)
        .describe('Put the bucket into the path of a URL, not into its host; most servers other than AWS need it'),
      accessKeyId: text
        .optional()
        .meta({ secret: true })
        .describe('Access key; by default the credentials that the AWS SDK finds, such as a role of the machine'),
      secretAccessKey: text.optional().meta({ secret: true }).describe('Secret of the access key'),
      caFile: text.optional().describe('PEM file of the authority that signed the certificate of the S3 server'),
      redirect: flag
        .default(false)
        .describe('Answer downloads of 1 MiB or more with 307, so that clients get the bytes from S3 itself'),
      publicEndpoint: z
        .url({ protocol: /^https?$/, error: 'expected an http or https URL', abort: true })
        .refine(hasNoUser, 'a URL here cannot have a user name or password')
        .optional()
        .describe('URL of the S3 server as clients reach it, for `redirect`; by default `storage.s3.endpoint`'),
    })
    .prefault({}),
};

/** What the storage settings require of one another. */
export function checkStorageSettings(
  { driver, s3 }: { driver: string; s3: z.output<typeof storage.s3> },
  context: { addIssue(issue: { code: 'custom'; path: string[]; message: string }): void },
): void {
  const refuse = (key: string, message: string) => context.addIssue({ code: 'custom', path: ['s3', key], message });
  if (driver === 's3' && s3.bucket === undefined) refuse('bucket', 'storage.driver s3 needs a bucket');
  const other = 'is used only together with';
  if (s3.accessKeyId === undefined && s3.secretAccessKey !== undefined)
    refuse('secretAccessKey', `${other} storage.s3.accessKeyId`);
  if (s3.secretAccessKey === undefined && s3.accessKeyId !== undefined)
    refuse('accessKeyId', `${other} storage.s3.secretAccessKey`);
}
