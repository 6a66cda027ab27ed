import { randomUUID } from 'node:crypto';
import { toolOf, type BillComponent } from '../runtime/cyclonedx.ts';
import { hexOf, algorithmOf, type Digest } from '../runtime/digest.ts';
import { envelopeOf, type SigningKey } from '../runtime/dsse.ts';
import { pause } from '../runtime/event-loop.ts';
import { version } from '../runtime/package.ts';
import type { PullUser } from '../usage/pulls.ts';
import type { AttachedDocument } from './exposable.ts';

/** What a job pulled before it pushed an image. */
interface ObservedPulls {
  image: { name: string; digest: Digest; component: BillComponent };
  /** Undefined if nothing is known of it any more. */
  job: PullUser['job'] | undefined;
  /** Milliseconds since 1970 UTC. */
  pushedAt: number;
  pulled: readonly BillComponent[];
  /** Whether the job pulled more than that. */
  hasMore: boolean;
}

/** Sigstore bundle: protobuf-specs, "Bundle", v0.3. */
const bundleType = 'application/vnd.dev.sigstore.bundle.v0.3+json';
const predicateType = 'https://cyclonedx.org/bom';
const description =
  'Observed by the server: what the job pulled from it before it pushed the image. It can list more than the image has inside, and lacks what the client had in its own cache or got elsewhere.';

/**
 * A bill of materials (CycloneDX 1.6) in a statement about the image (in-toto Attestation Framework, v1), which is signed, as a bundle
 * of Sigstore.
 */
export async function observedBill(pulls: ObservedPulls, key: SigningKey): Promise<AttachedDocument> {
  const { image } = pulls;
  const statement = {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: image.name, digest: { [algorithmOf(image.digest)]: hexOf(image.digest) } }],
    predicateType,
    predicate: billOf(pulls),
  };
  const payload = Buffer.from(JSON.stringify(statement));
  await pause();
  const bundle = {
    mediaType: bundleType,
    verificationMaterial: { publicKey: { hint: key.id } },
    // Sigstore's clients skip a signature whose key ID is not their own form of it.
    dsseEnvelope: envelopeOf('application/vnd.in-toto+json', payload, { ...key, id: '' }),
  };
  await pause();
  return {
    mediaType: bundleType,
    bytes: Buffer.from(JSON.stringify(bundle)),
    annotations: {
      'org.opencontainers.image.created': new Date(pulls.pushedAt).toISOString(),
      'dev.sigstore.bundle.content': 'dsse-envelope',
      'dev.sigstore.bundle.predicateType': predicateType,
    },
  };
}

function billOf({ image, job, pushedAt, pulled, hasMore }: ObservedPulls): object {
  const { component } = image;
  const components = new Map(pulled.map((each) => [each['bom-ref'], each]));
  const { issuer, repository, ref, run } = job ?? {};
  const facts = { issuer, repository, ref, run };
  const known = Object.entries(facts).flatMap(([name, value]) =>
    value ? [{ name: `entrepot:job:${name}`, value }] : [],
  );
  const more = hasMore ? [{ name: 'entrepot:more', value: 'The job pulled more; these are the latest.' }] : [];
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${randomUUID()}`,
    version: 1,
    metadata: {
      timestamp: new Date(pushedAt).toISOString(),
      lifecycles: [{ name: 'observed', description }],
      tools: toolOf(version),
      component,
      properties: [...known, ...more],
    },
    components: [...components.keys()].toSorted().map((each) => components.get(each)),
    compositions: [{ aggregate: 'incomplete', assemblies: [component['bom-ref']] }],
  };
}
