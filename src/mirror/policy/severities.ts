/** Of advisories, from the lowest. NuGet warns with NU1901, NU1902, NU1903 and NU1904. */
export const severities = ['low', 'moderate', 'high', 'critical'] as const;
