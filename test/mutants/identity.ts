import { mutantsOf } from './mutant.ts';

export const identity = [
  ...mutantsOf(
    'src/identity/identity-token.ts',
    ['test/identity/hostile-tokens.test.ts'],
    [
      ['HS256 is an allowed algorithm', "'RS256',", "'RS256', 'HS256',"],
      ['a minute of tolerance', 'const tolerance = 30;', 'const tolerance = 60;'],
      ['pull_request_target is accepted', "=== 'pull_request_target'", "=== 'pull_request_targets'"],
    ],
  ),
  ...mutantsOf(
    'src/identity/issuer-keys.ts',
    ['test/identity/hostile-tokens.test.ts'],
    [
      ['each unknown key fetches the keys again', 'const unknownPause = 60_000;', 'const unknownPause = 0;'],
      ['a failed fetch is repeated at once', 'const failurePause = 5000;', 'const failurePause = 0;'],
    ],
  ),
  ...mutantsOf(
    'src/identity/exchange.ts',
    ['test/identity/exchange.test.ts'],
    [
      [
        'an identity token is exchanged again',
        "insertNew('used_identity_tokens', [row])) === 0",
        "insertNew('used_identity_tokens', [row])) < 0",
      ],
      [
        'every project learns about the rules',
        'missed && isForProject(publisher.claims, missed, issuer.kind)',
        'missed',
      ],
    ],
  ),
  ...mutantsOf(
    'src/identity/publishers.ts',
    ['test/identity/publishers.test.ts'],
    [
      ['rules have any size', 'Number(others.size) + size <= maxRules', 'size <= maxRules'],
      [
        'a changed rule counts as it was',
        'WHERE account_id = ? AND id <> ?`,\n    [row.account_id, row.id],',
        "WHERE account_id = ? AND id <> ?`,\n    [row.account_id, ''],",
      ],
      ['too large rules cannot shrink', 'size <= sizeOf(before)', 'size < 0'],
      [
        'a rule trusts its issuer of before',
        'stored?.startsWith(start) ?',
        'stored ?',
        'test/identity/ends-of-access.test.ts',
      ],
      ['rules that memory does not keep any more are gone', 'kept.get(id) ?? []', '[]'],
    ],
  ),
  ...mutantsOf(
    'src/api/publishers/publishers.ts',
    ['test/identity/publishers.test.ts'],
    [
      [
        'a rule with operate is given to others',
        'allowToken(principal, before.scopes, before.patterns)',
        'allowToken(principal, [], before.patterns)',
      ],
    ],
  ),
  ...mutantsOf(
    'src/identity/person-sign-in.ts',
    ['test/console/hostile-sign-in.test.ts'],
    [
      ['the nonce is not checked', "expectedNonce: derived(secret, 'nonce'),", ''],
      ['the signature of ID tokens is not checked', '[client.enableNonRepudiationChecks, ', '['],
      ['state and verifier are the same', '`${purpose} ${secret}`', '`${secret}`'],
    ],
  ),
  ...mutantsOf(
    'src/console/framework/cookie.ts',
    ['test/console/hostile-sign-in.test.ts'],
    [
      [
        'a stranger makes the cookie of a sign-in',
        "if (!(await cookies.isSigned('sign-in', text!,",
        "if (text === '' && !(await cookies.isSigned('sign-in', text,",
      ],
    ],
  ),
  ...mutantsOf(
    'src/limits/limits.ts',
    ['test/console/hostile-sign-in.test.ts'],
    [['one address uses all connections to the provider', 'const maxAttempts = 2;', 'const maxAttempts = 1000;']],
  ),
  ...mutantsOf(
    'src/console/framework/visit.ts',
    ['test/console/sessions.test.ts'],
    [['an invented cookie costs nothing', 'isSigned ? await find()', 'true ? await find()']],
  ),
  ...mutantsOf(
    'src/identity/publisher.ts',
    ['test/identity/ends-of-access.test.ts'],
    [
      ['a rule trusts each issuer with the name', 'return issuerUrl === null ?', 'return issuerUrl !== "" ?'],
      ['a rule may accept unprotected branches', "!.join() !== 'true'", "!.join() === ''"],
    ],
  ),
  ...mutantsOf(
    'src/api/account/tokens.ts',
    ['test/identity/ends-of-access.test.ts'],
    [['a token outlives the rule behind it', 'publisherId = null, ', '']],
  ),
  ...mutantsOf(
    'src/accounts/people.ts',
    ['test/console/person-sign-in.test.ts'],
    [['a session of another provider continues', 'if (issuer !== this.#issuer) return ruled;', '']],
  ),
];
