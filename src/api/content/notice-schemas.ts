import { z } from 'zod';
import { listOf } from '../framework/schemas.ts';

// Requests and answers about the deprecation and the advisories of hosted packages.

const range = z.string().min(1).max(255);

/** The reasons of the NuGet protocol. */
export const reasons = ['Legacy', 'CriticalBugs', 'Other'] as const;

export const deprecation = z
  .strictObject({
    reasons: z.array(z.enum(reasons)),
    message: z.string().nullable(),
    alternative: z
      .strictObject({ id: z.string(), range: z.string().meta({ description: '`*`: every version' }) })
      .nullable()
      .meta({ description: 'The package to use instead' }),
  })
  .meta({ id: 'Deprecation' });

const deprecationFields = {
  reasons: z.array(z.enum(reasons)).min(1, 'Give one or more reasons.').max(reasons.length),
  message: z.string().max(1000).nullish().meta({ description: 'Plain text. The reason `Other` needs it' }),
  alternative: z
    .strictObject({
      id: z.string().min(1, 'Give the ID of the package.').max(100),
      range: range.nullish().meta({
        description: 'Such as `[2.0.0, )`; `2.0.0` means 2.0.0 or later. Every version if it is missing, null or `*`',
      }),
    })
    .nullish()
    .meta({ description: 'The package to use instead' }),
};

export const deprecationRequest = z.strictObject(deprecationFields).meta({ id: 'DeprecationRequest' });

export const deprecationsRequest = z
  .strictObject({
    versions: z
      .union([z.literal('all'), z.array(z.string().max(255)).min(1).max(1000)])
      .meta({ description: '`all`: every version that exists now. Later versions are not deprecated' }),
    ...deprecationFields,
  })
  .meta({ id: 'DeprecationsRequest' });

const versionDeprecation = z
  .strictObject({ version: z.string(), listed: z.boolean(), deprecation: deprecation.nullable() })
  .meta({ id: 'VersionDeprecation' });

export const versionDeprecationList = listOf(versionDeprecation);

const severity = z
  .int()
  .min(0)
  .max(3)
  .meta({ description: '0 low, 1 moderate, 2 high, 3 critical: clients warn with NU1901 to NU1904' });

export const advisory = z
  .strictObject({
    id: z.uuid(),
    package: z.string(),
    versions: z.string().meta({ description: 'The affected range, as NuGet writes it' }),
    severity,
    url: z.string(),
    created_at: z.iso.datetime(),
  })
  .meta({ id: 'Advisory' });

export const advisoryRequest = z
  .strictObject({
    package: z.string().min(1).max(100).meta({ description: 'The ID of a package that the account hosts' }),
    versions: range.meta({
      description: 'The affected range, with brackets: `[1.0.0, 1.2.0)`, `(, 2.0.0]`, or `[1.0.0]` for one version',
    }),
    severity,
    url: z.string().min(1).max(500).meta({ description: 'Where people read about it: HTTP or HTTPS' }),
  })
  .meta({ id: 'AdvisoryRequest' });

export const advisoryList = listOf(advisory);
