import { mutantsOf } from './mutant.ts';

export const identity = [
  ...mutantsOf(
    'src/identity/identity-token.ts',
    ['test/identity/hostile-tokens.test.ts'],
    [
      ['HS256 is an allowed algorithm', "'RS256',", "'RS256', 'HS256',"],
      ['a token may have two audiences', 'Array.isArray(aud) && aud.length !== 1', 'false'],
      ['a minute of tolerance', 'const tolerance = 30;', 'const tolerance = 60;'],
      ['pull_request_target is accepted', "=== 'pull_request_target'", "=== 'pull_request_targets'"],
      [
        'a token without jti is known by its signature, too',
        "value.slice(0, value.lastIndexOf('.'))",
        'value',
        'test/identity/exchange.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/identity/issuer-keys.ts',
    ['test/identity/hostile-tokens.test.ts'],
    [
      ['each unknown key fetches the keys again', 'const unknownPause = 60_000;', 'const unknownPause = 0;'],
      ['a discovery document of another issuer counts', "discovered['issuer'] !== issuer", 'false'],
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
    'src/api/publishers.ts',
    ['test/identity/publishers.test.ts'],
    [
      [
        'a rule with operate is given to others',
        'allowToken(principal, before.scopes, before.patterns)',
        'allowToken(principal, [], before.patterns)',
      ],
      ['a limited token sees all rules', '!principal.names || coversPatterns(principal, patterns)', 'true'],
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
    'src/accounts/people.ts',
    ['test/console/person-sign-in.test.ts'],
    [
      ['a session of another provider continues', 'if (issuer !== this.#issuer) return grants;', ''],
      ['a claim with any value is enough', 'name === claim && found === value', 'name === claim'],
    ],
  ),
];
