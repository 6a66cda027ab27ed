import { hash } from 'node:crypto';
import type { CiJob } from '../accounts/principal.ts';
import type { IssuerKind } from '../config/identity.ts';
import { valuesIn } from './claims.ts';
import type { VerifiedToken } from './identity-token.ts';

/** The claims that say which repository a job belongs to, which ref it builds, and in which run, by kind of issuer. */
const claimsOfJob: Record<IssuerKind, Record<'repository' | 'ref' | 'run', string>> = {
  github: { repository: 'repository', ref: 'ref', run: 'run_id' },
  gitlab: { repository: 'project_path', ref: 'ref', run: 'pipeline_id' },
  azure: { repository: 'rpo_uri', ref: 'rpo_ref', run: 'run_id' },
  kubernetes: {
    repository: 'kubernetes.io/namespace',
    ref: 'kubernetes.io/serviceaccount/name',
    run: 'kubernetes.io/pod/name',
  },
  other: { repository: 'repository', ref: 'ref', run: 'run_id' },
};
const maxLength = 500;

/** The job of a CI that an identity token belongs to. */
export function jobOf(accountId: number, { issuer, claims }: Pick<VerifiedToken, 'issuer' | 'claims'>): CiJob {
  const valueOf = (claim: string) => valuesIn(claims, claim)[0]?.slice(0, maxLength) ?? null;
  const { repository, ref, run } = claimsOfJob[issuer.kind];
  const job = { repository: valueOf(repository), ref: valueOf(ref), run: valueOf(run) };
  const subject = valueOf('sub');
  // One run can have several subjects, one for each of its environments.
  const identity = [accountId, issuer.issuer, job.repository, job.ref, job.run ?? subject];
  return { id: hash('sha256', JSON.stringify(identity)).slice(0, 32), issuer: issuer.name, ...job, subject };
}
