import test from 'ava';
import type { IssuerKind } from '../../src/config/identity.ts';
import { schema } from '../../src/config/schema.ts';
import type { DomainError } from '../../src/runtime/errors.ts';
import { checkPublisher, trusts, warningsOf } from '../../src/identity/publisher.ts';

/** An issuer as in the settings. */
function issuerOf(kind: IssuerKind, name: string = kind, audience = 'https://hub.test') {
  return schema.parse({ trustedIssuers: [{ name, issuer: `https://${name}.test`, audience, kind }] })
    .trustedIssuers[0]!;
}

const kinds = ['github', 'gitlab', 'azure', 'kubernetes', 'other'] as const;
const issuers = kinds.map((kind) => issuerOf(kind));

/** The first words of the warnings of a rule. */
function warnings(issuer: string, claims: Record<string, string[]>, url: string | null = `https://${issuer}.test`) {
  return warningsOf({ issuer, issuerUrl: url, claims }, issuers).map((each) => each.split(' ').slice(0, 2).join(' '));
}

test('a rule is warned of what its claims leave open, by the kind of its issuer', (t) => {
  t.deepEqual(warnings('github', { repository_owner_id: ['1'] }), ['Every repository']);
  t.deepEqual(warnings('github', { repository_id: ['1'] }), []);
  t.deepEqual(warnings('gitlab', { namespace_id: ['1'] }), ['Pipelines of', 'Every project']);
  t.deepEqual(warnings('gitlab', { project_id: ['1'], ref_protected: ['false'] }), ['Pipelines of']);
  t.deepEqual(warnings('gitlab', { project_id: ['1'], ref_protected: ['true'] }), []);
  for (const kind of ['azure', 'kubernetes', 'other']) t.deepEqual(warnings(kind, { sub: ['x'] }), [], kind);
});

test('an audience that all tokens of Azure Pipelines have is warned of', (t) => {
  const azure = issuerOf('azure', 'azure', 'api://AzureADTokenExchange');
  const rule = { issuer: 'azure', issuerUrl: azure.issuer, claims: { def_id: ['1'] } };
  t.regex(warningsOf(rule, [azure]).join('\n'), /^All tokens of Azure Pipelines have the audience/);
});

test('a rule follows the address of its issuer, and without one its name', (t) => {
  t.deepEqual(warnings('renamed', { sub: ['x'] }, 'https://other.test'), []);
  t.regex(
    warningsOf({ issuer: 'other', issuerUrl: 'https://gone.test', claims: {} }, issuers).join(),
    /no issuer with the address https:\/\/gone\.test any more/,
  );
  t.regex(warningsOf({ issuer: 'gone', issuerUrl: null, claims: {} }, issuers).join(), /no issuer "gone" any more/);
  const other = issuers.at(-1)!;
  t.true(trusts({ issuer: 'other', issuerUrl: null }, other));
  t.false(trusts({ issuer: 'github', issuerUrl: null }, other));
  t.true(trusts({ issuer: 'github', issuerUrl: other.issuer }, other));
  t.false(trusts({ issuer: 'other', issuerUrl: 'https://gone.test' }, other));
});

test('a rule needs a name and an issuer of the settings, and gets the address of the issuer', (t) => {
  const rule = { name: ' main ', issuer: 'github', claims: { repository_id: 1 }, scopes: ['write', 'read'] };
  t.like(checkPublisher(rule, issuers), { name: 'main', issuer: 'github', issuerUrl: 'https://github.test' });
  t.is(checkPublisher({ ...rule, name: 'x'.repeat(200) }, issuers).name.length, 200);
  for (const name of ['', '  ', 'x'.repeat(201)])
    t.throws(() => checkPublisher({ ...rule, name }, issuers), { name: 'Invalid', message: /name of 1 to 200/ });
  t.throws(() => checkPublisher({ ...rule, issuer: 'gone' }, issuers), {
    name: 'Invalid',
    message: /no issuer "gone"\. It has: github, gitlab, azure, kubernetes, other\./,
  });
  t.throws(() => checkPublisher(rule, []), { message: /It has: none\./ });
  const long = t.throws<DomainError>(() => checkPublisher({ ...rule, issuer: 'x'.repeat(200) }, issuers));
  t.true(long.message.includes(`no issuer "${'x'.repeat(100)}". It has`), long.message);
  t.deepEqual(long.detail, { errors: [{ field: 'issuer', message: long.message }] });
});
