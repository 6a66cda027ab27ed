import type { Form } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import type { PageCall } from '../../framework/page.ts';

// The claims of a rule by the kind of its issuer: as fields of a form, and as what its CI has to do.

interface Issuer {
  name: string;
  issuer: string;
  audience: string;
  kind: string;
}

interface ClaimField {
  claim: string;
  label: string;
  hint?: Html | string;
}

const ref = {
  claim: 'ref',
  label: 'Branch or tag',
  hint: html`Such as <code>refs/heads/main</code> or <code>refs/tags/*</code>. Empty for all.`,
};
const environment = { claim: 'environment', label: 'Environment', hint: 'Empty for all.' };

const fields: Readonly<Record<string, readonly ClaimField[]>> = {
  github: [
    {
      claim: 'repository_id',
      label: 'Repository ID',
      hint: html`<code>gh api repos/OWNER/NAME --jq .id</code> shows it.`,
    },
    {
      claim: 'repository_owner_id',
      label: 'Or the ID of the owner, for all repositories',
      hint: html`<code>gh api users/OWNER --jq .id</code> shows it.`,
    },
    ref,
    environment,
    {
      claim: 'workflow_ref',
      label: 'Workflow',
      hint: html`Such as <code>OWNER/NAME/.github/workflows/release.yml@*</code>. Empty for all.`,
    },
  ],
  gitlab: [
    { claim: 'project_id', label: 'Project ID', hint: 'The page of the project shows it.' },
    {
      claim: 'ref_protected',
      label: 'Only protected branches and tags',
      hint: html`<code>true</code>, or empty for all.`,
    },
    { ...ref, hint: html`Such as <code>main</code> or <code>v*</code>. Empty for all.` },
    environment,
  ],
  azure: [
    { claim: 'org_id', label: 'ID of the organization' },
    { claim: 'prj_id', label: 'ID of the project' },
    { claim: 'def_id', label: 'ID of the pipeline' },
  ],
  kubernetes: [
    { claim: 'sub', label: 'Service account', hint: html`<code>system:serviceaccount:NAMESPACE:NAME</code>` },
  ],
};

/** The claims that have a field of their own, for a kind of issuer. */
export function namedClaims(kind: string): string[] {
  return (fields[kind] ?? []).map(({ claim }) => claim);
}

/** The name of the field of a claim. */
export function claimField(claim: string): string {
  return `claim:${claim}`;
}

/** The fields for the claims of an issuer, with one for all others. */
export function claimFields(form: Form, kind: string): Html {
  const own = fields[kind] ?? [];
  return html`${own.map(({ claim, label, hint }) =>
    form.input(claimField(claim), label, {
      attributes: html`maxlength="500" spellcheck="false"`,
      hint: html`Claim <code>${claim}</code>. ${hint}`,
    }),
  )}
  ${form.area('claims', own.length > 0 ? 'Further claims' : 'Claims', {
    attributes: html`rows="4" spellcheck="false"`,
    hint: html`One in each line, such as <code>repository_visibility = private</code>. All claims must match. A claim in
      several lines may have any of these values. IDs never go to another project, names can.`,
  })}`;
}

/** What a CI has to do to get a token by a rule of this issuer: the name of the file, and what to paste into it. */
export function workflowOf(
  { kind, audience }: Issuer,
  { base, feed, registry }: PageCall['urls'],
  account: string,
): { file: string; text: string } {
  const host = new URL(registry).host;
  const exchange = (token: string, indent: string) =>
    [
      `TOKEN=$(curl --fail --silent ${base}/v1/token-exchange`,
      '--data-urlencode grant_type=urn:ietf:params:oauth:grant-type:token-exchange',
      '--data-urlencode subject_token_type=urn:ietf:params:oauth:token-type:jwt',
      `--data-urlencode audience=${account} --data-urlencode subject_token="${token}" | jq -r .access_token)`,
    ].join(` \\\n${indent}  `);
  const use = (indent: string) =>
    [
      `dotnet nuget push *.nupkg --source ${feed}/v3/index.json --api-key "$TOKEN"`,
      `echo "$TOKEN" | docker login ${host} --username api --password-stdin`,
    ].join(`\n${indent}`);
  if (kind === 'github') {
    return {
      file: '.github/workflows/publish.yml',
      text: `name: publish
on:
  push:
    tags: ['v*']
permissions:
  contents: read
  id-token: write
jobs:
  publish:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      # Build the packages or the image here.
      - run: |
          ID_TOKEN=$(curl --silent -H "Authorization: Bearer $ACTIONS_ID_TOKEN_REQUEST_TOKEN" \\
            "$ACTIONS_ID_TOKEN_REQUEST_URL&audience=${audience}" | jq -r .value)
          ${exchange('$ID_TOKEN', '          ')}
          echo "::add-mask::$TOKEN"
          ${use('          ')}`,
    };
  }
  if (kind === 'gitlab') {
    return {
      file: '.gitlab-ci.yml',
      text: `publish:
  id_tokens:
    ID_TOKEN:
      aud: ${audience}
  script:
    - |
      ${exchange('$ID_TOKEN', '      ')}
      ${use('      ')}`,
    };
  }
  return { file: 'a script', text: `${exchange('$ID_TOKEN', '')}\n${use('')}` };
}
