import { nameKinds } from '../../config/protocols.ts';
import { z } from 'zod';
import {
  bytes,
  container,
  containerTag,
  count,
  listOf,
  origin,
  packageVersion,
  text,
  time,
  upstream,
} from '../framework/schemas.ts';
import { countedTotal } from '../framework/sorted.ts';

// What `/v1` says about packages and images in detail.

const marks = packageVersion.pick({ severity: true, deprecated: true }).shape;

export const searchHit = z
  .strictObject({
    kind: z.enum(nameKinds),
    name: z.string().meta({ description: 'The ID of a package, or the name by which an image is pulled' }),
    origin,
    upstream,
    version: z.string().nullable().meta({ description: 'The newest version of a package; null for an image' }),
    description: z.string().nullable().meta({ description: 'Up to 300 characters; null if it is not stored here' }),
    digest: z.string().nullable().meta({ description: 'The digest of the image that the text is or begins' }),
    ...marks,
    download_count: count,
  })
  .meta({ id: 'SearchHit' });

export const packageVersionDetails = packageVersion
  .omit({ severity: true, deprecated: true })
  .extend({
    id: z.string().meta({ description: 'As this version writes it' }),
    origin,
    upstream,
    package_types: z.array(z.string()),
    title: text,
    description: text,
    authors: text.meta({ description: 'Names separated by commas, as written' }),
    tags: z.array(z.string()),
    copyright: text,
    release_notes: text,
    project_url: text,
    repository_url: text,
    repository_commit: text,
    license_expression: text.meta({ description: 'An SPDX expression' }),
    license_file: text.meta({ description: 'The path of the licence in the package' }),
    license_url: text,
    requires_license_acceptance: z.boolean(),
    development_dependency: z.boolean(),
    min_client_version: text,
    dependency_groups: z.array(
      z.strictObject({
        target_framework: text.meta({ description: 'null: any framework' }),
        dependencies: z
          .array(z.strictObject({ id: z.string(), range: z.string(), ...marks }))
          .meta({ description: 'The marks are those of the lowest version of the range, which NuGet chooses' }),
      }),
    ),
    has_icon: z.boolean().meta({ description: 'Whether the package names an icon in it' }),
    readme: text.meta({ description: 'Markdown; the first 100,000 characters' }),
    is_readme_whole: z.boolean(),
    deprecation: z
      .strictObject({
        reasons: z.array(z.string()),
        message: text,
        alternate_package: z.strictObject({ id: z.string(), range: z.string() }).nullable(),
      })
      .nullable(),
    vulnerabilities: z.array(z.strictObject({ advisory_url: z.string(), severity: z.string() })),
    is_advice_known: z.boolean().meta({
      description: 'false if the upstream did not say in time whether a mirrored version is deprecated or unlisted',
    }),
  })
  .meta({ id: 'PackageVersionDetails' });

/** One image repository without its tags. */
export const containerDetails = container.omit({ tags: true }).meta({ id: 'ContainerDetails' });

const pulls = {
  pull_count: count.meta({ description: 'Pulls by digest or tag; of an index those of its images' }),
  last_pulled_at: time.nullable(),
};

export const tagSchema = containerTag
  .extend({
    aliases: z.array(z.string()).meta({ description: 'Up to ten further tags with the same digest' }),
    platforms: z
      .array(z.string())
      .nullable()
      .meta({ description: 'Such as linux/amd64; null if this is not stored here' }),
    attached: z
      .array(z.enum(['signature', 'sbom', 'attestation']))
      .meta({ description: 'What is stored about it; of a mirrored image if a client has listed it' }),
    ...pulls,
  })
  .meta({ id: 'TagRow' });

export const manifestRow = z
  .strictObject({
    digest: z.string(),
    media_type: z.string(),
    artifact_type: text,
    size_bytes: bytes,
    subject: text.meta({ description: 'The digest of the manifest that it refers to, such as a signed image' }),
    is_child: z.boolean().meta({ description: 'Whether an index lists it' }),
    updated_at: time,
    ...pulls,
  })
  .meta({ id: 'ManifestRow' });

const pairs = z.array(z.strictObject({ name: z.string(), value: z.string() }));
const described = { digest: z.string(), media_type: z.string(), size_bytes: bytes };

export const manifestDetails = z
  .strictObject({
    ...described,
    size_bytes: bytes.meta({ description: 'The manifest and everything that it refers to' }),
    name: z.string(),
    origin,
    upstream,
    artifact_type: text,
    subject: text,
    updated_at: time,
    ...pulls,
    annotations: pairs,
    tags: z.array(z.string()).meta({ description: 'Up to 100 tags with this digest' }),
    withdrawn_tags: z
      .array(containerTag.pick({ name: true }).extend({ withdrawn_at: time }))
      .meta({ description: 'Those of the tags that the upstream does not offer any more, and since when' }),
    indexes: z.array(z.string()).meta({ description: 'Up to 100 indexes of this image that list it' }),
    config: z
      .strictObject({
        ...described,
        is_stored: z.boolean().meta({ description: 'false: not stored here, and not fetched for this answer' }),
        platform: text,
        created: text,
        author: text,
        labels: pairs,
        entrypoint: z.array(z.string()),
        command: z.array(z.string()),
        environment: z.array(z.string()),
        user: text,
        working_directory: text,
        ports: z.array(z.string()).meta({ description: 'Such as 8080/tcp' }),
      })
      .nullable()
      .meta({ description: 'null for an index' }),
    layers: z.array(z.strictObject({ ...described })).meta({ description: 'Up to 500' }),
    history: z.array(z.strictObject({ created: text, created_by: text, comment: text, is_empty: z.boolean() })),
    children: z.array(
      z.strictObject({
        ...described,
        platform: text,
        is_stored: z.boolean(),
        content_bytes: bytes
          .nullable()
          .meta({ description: 'With everything that it refers to; null if it is not stored here' }),
        attests: text.meta({ description: 'The digest of the child whose build it attests; null for an image' }),
      }),
    ),
    referrers: z.array(z.strictObject({ ...described, artifact_type: text, annotations: pairs })),
    are_referrers_known: z.boolean().meta({ description: 'false for a mirrored image whose referrers are not stored' }),
  })
  .meta({ id: 'ManifestDetails' });

export const searchResults = listOf(searchHit);
export const packageVersionList = listOf(packageVersion);
export const tagList = listOf(tagSchema);
export const manifestList = listOf(manifestRow);

export const dependentList = listOf(
  z
    .strictObject({
      id: z.string(),
      version: z.string().meta({ description: 'Its newest listed version' }),
      ranges: z.array(z.string()).meta({ description: 'The versions that it accepts; up to five ranges' }),
      ...marks,
    })
    .meta({ id: 'Dependent' }),
);

const severity = packageVersion.shape.severity.unwrap();

export const findingList = listOf(
  z
    .strictObject({
      id: z.string(),
      version: z.string(),
      origin,
      upstream,
      severity: severity
        .nullable()
        .meta({ description: 'The highest of its advisories; null if it is only deprecated' }),
      advisories: z.array(z.strictObject({ severity, url: z.string() })),
      deprecated: z.boolean(),
      downloads_30_days: count.meta({
        description: 'Of all versions of the package, in the last 30 days (UTC) with today',
      }),
      last_used_at: time.nullable().meta({ description: 'When a version of the package was last used with a token' }),
      last_used_by: z
        .strictObject({
          token_id: z.string().meta({ description: 'The token; for tokens that a rule gave, the rule' }),
          token_name: z.string().nullable().meta({ description: 'null for a rule, and for a token that is deleted' }),
        })
        .nullable()
        .meta({ description: 'null without the scope `admin`, and if this token may not see that one' }),
    })
    .meta({ id: 'Finding' }),
).extend({
  vulnerable_count: count.meta({ description: 'Versions with an advisory, on all pages' }),
  deprecated_count: count,
  is_complete: z.boolean().meta({
    description: 'false: an upstream did not send its vulnerability data, or not all stored documents are read yet',
  }),
});

export const claimList = listOf(
  z.strictObject({ kind: z.enum(nameKinds), name: z.string(), since: time }).meta({ id: 'Claim' }),
).extend({ total: countedTotal });
